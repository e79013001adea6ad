import Logging
import StageControl
import StageModel
import StagePack
import StageSystem
import Synchronization
import SystemPackage

/// A download of the daemon that a command waits for, whose file it moves to a path.
///
/// It has a session of its own. A command that was interrupted leaves both to the daemon; the same command again waits
/// for the same download.
struct CollectedDownload: Sendable {
    let session: String
    let settings: SessionConfiguration
    let request: TransferRequest
    let path: FilePath
    /// The progress of the request that creates the daemon's task.
    let addition = Addition()

    /// The progress of creating the daemon's task; an interrupted command reports by it whether the daemon continues.
    final class Addition: Sendable {
        /// The progress of the request.
        enum State: Sendable {
            /// The command has not requested the task.
            case notRequested
            /// The command has requested the task, and the daemon has not responded.
            case requested
            /// The daemon has the task.
            case confirmed
        }

        private let current = Mutex(State.notRequested)

        /// The state.
        var state: State { current.withLock { $0 } }

        /// Notes a request; the daemon keeps a task that it has confirmed.
        fileprivate func request() {
            current.withLock { if $0 == .notRequested { $0 = .requested } }
        }

        /// Notes the response of the daemon.
        fileprivate func confirm() { current.withLock { $0 = .confirmed } }
    }

    /// The task of the download after its end, which `tasks add` prints, or the failure.
    typealias Ending = Result<TransferTask, CommandFailure>

    /// Throws if no file can be moved to the path: if it is a directory, or the directory above it does not exist.
    func checkPath() throws(CommandFailure) {
        do throws(FileError) {
            _ = try Self.location(of: path)
        } catch {
            var failure = CommandFailure.usage(error.description)
            if error.errno == .isDirectory { failure.hint = "name a file in the directory" }
            throw failure
        }
    }

    /// Returns the directory and the name of a file that does not have to exist.
    private static func location(
        of path: FilePath
    ) throws(FileError) -> (folder: Directory, name: FilePath.Component) {
        let above = path.removingLastComponent()
        let folder = try Directory.open(above.isEmpty ? "." : above)
        guard let name = path.lastComponent, name.kind == .regular,
            try folder.status(FilePath(name))?.kind != .directory
        else { throw FileError("create", path: path, errno: .isDirectory) }
        return (folder, name)
    }

    /// A download that has ended.
    private struct Ended {
        let task: TransferTask
        let event: SessionEvent
        /// The directory of the daemon that has the file.
        let downloads: DownloadDirectory?
        /// The open stream, which keeps other commands from taking the file.
        let events: ControlEvents
    }

    /// Adds the download, waits for its end, moves the file, and removes the download from the daemon.
    ///
    /// Connects again to a daemon that was restarted, which continues the download.
    func collect(from client: ControlClient) async throws(ControlError) -> Ending {
        var hasCleared = false
        let ended = try await Daemon.reconnecting(from: client) {
            (client: ControlClient) async throws(ControlError) -> Ended in
            try await client.makeSession(session, configuration: settings)
            // After a restart, an ended download is the one that this command waits for.
            if !hasCleared { try await clear(client) }
            hasCleared = true
            return try await waitForEnd(client)
        }
        defer { ended.events.close() }
        if case .failure(let failure) = end(of: ended) {
            // The file stays at the daemon until it could be moved.
            if ended.event.kind != .completed { await removeRecord(from: client) }
            return .failure(failure)
        }
        await removeRecord(from: client)
        return .success(ended.task)
    }

    /// Removes the session of a download that has ended; the result of the command does not depend on that.
    private func removeRecord(from client: ControlClient) async {
        do throws(ControlError) {
            try await removeSession(from: client)
        } catch {
            // The next command for this URL, or 'tasks clear', removes the record.
            Log.logger.warning(
                "The daemon keeps the record of the download",
                metadata: ["error": "\(error)"]
            )
        }
    }

    /// Removes a download that an interrupted command has left, and that has ended without a file, or whose file was moved.
    ///
    /// Its failure is not reported: it was that of the interrupted command.
    private func clear(_ client: ControlClient) async throws(ControlError) {
        let earlier = try await client.tasks(in: session)
        guard earlier.contains(where: { $0.hasNoFile(in: client.downloads) }) else { return }
        try await client.removeSession(session)
        try await client.makeSession(session, configuration: settings)
    }

    /// Adds the download, unless the daemon has it, and waits for its end.
    private func waitForEnd(_ client: ControlClient) async throws(ControlError) -> Ended {
        addition.request()
        let ids = try await client.createTasks([request], in: session)
        addition.confirm()
        let events = try await client.events(of: session)
        for try await event in events where event.task == ids[0] {
            guard [.completed, .failed, .cancelled].contains(event.kind) else { continue }
            // Before the file is moved: then another command may remove the session.
            let task = try await client.task(ids[0])
            return Ended(
                task: task,
                event: event,
                downloads: client.downloads,
                events: events
            )
        }
        throw .lost(client.path, after: nil)
    }

    /// Removes the session, unless it is gone, also by a request whose response was lost.
    private func removeSession(from client: ControlClient) async throws(ControlError) {
        try await Daemon.reconnecting(from: client) {
            (client: ControlClient) async throws(ControlError) -> Void in
            do throws(ControlError) {
                try await client.removeSession(session)
            } catch .refused(let refusal) where refusal.code == .notFound {
                return
            }
        }
    }

    /// Returns success, after moving the file, or the failure.
    private func end(of ended: Ended) -> Result<Void, CommandFailure> {
        let event = ended.event
        switch event.kind {
        case .completed:
            return Result.catching { () throws(CommandFailure) in try move(ended) }
        case .cancelled:
            return .failure(
                CommandFailure(
                    status: .interrupted,
                    message: "the download was cancelled",
                    hint: nil,
                    retryAdvice: .now
                )
            )
        default:
            let failure =
                event.failure ?? TransferFailure(.unreachable, reason: "the download failed")
            return .failure(CommandFailure(failure))
        }
    }

    private func move(_ ended: Ended) throws(CommandFailure) {
        guard let location = ended.event.location, ended.downloads?.accepts(location) ?? false
        else {
            throw CommandFailure(
                status: .daemonRefused,
                message: "the daemon has no file of the download that this user may move",
                hint: nil,
                retryAdvice: .never
            )
        }
        do throws(FileError) {
            try Self.move(FilePath(location), to: path)
        } catch {
            throw CommandFailure(output: error)
        }
    }

    /// Moves a file into its new directory in one step, also from another file system.
    ///
    /// Gives it the permission bits of a file that this process creates; the daemon's files are private.
    private static func move(_ source: FilePath, to path: FilePath) throws(FileError) {
        let (folder, name) = try location(of: path)
        guard let old = source.lastComponent else {
            throw FileError("open", path: source, errno: .isDirectory)
        }
        let from = try Directory.open(source.removingLastComponent())
        if let mode = FileCreationMask.modeOfNewFile() {
            try from.file(reading: FilePath(old))?.ensureMode(mode)
        }
        do throws(FileError) {
            try from.rename(old, to: name, in: folder)
        } catch {
            guard error.errno == .improperLink else {
                throw FileError("create", path: path, errno: error.errno)
            }
            try copy(old, of: from, to: name, in: folder)
            try from.remove(old)
            return
        }
        try folder.synchronize()
    }

    /// Copies a file to its new name; returns once the copy is on disk under that name, so that the other may be removed.
    private static func copy(
        _ old: FilePath.Component,
        of from: Directory,
        to name: FilePath.Component,
        in folder: Directory
    ) throws(FileError) {
        guard let source = try from.file(reading: FilePath(old)) else {
            throw FileError("open", path: from.path.appending(old), errno: .noSuchFileOrDirectory)
        }
        let temporary = try TemporaryFile.make(
            for: name,
            in: folder,
            permissions: FilePermissions(rawValue: 0o666)
        )
        do throws(FileError) {
            try temporary.file.copyContent(of: source)
            try temporary.file.synchronize()
            try folder.rename(FilePath(temporary.name), over: name)
            try folder.synchronize()
        } catch {
            // The first error is the one to report.
            _ = try? folder.remove(temporary.name)
            throw error
        }
    }
}
