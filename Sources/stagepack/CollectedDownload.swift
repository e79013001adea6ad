import StageControl
import StageModel
import StagePack
import StageSystem
import StageTransfer
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

    /// The task of the download after its end, which `tasks add` prints, or the failure.
    typealias Ending = Result<TransferTask, CommandFailure>

    /// Throws if no file can be moved to the path: if it is a directory, or the directory above it does not exist.
    func checkPath() throws(CommandFailure) {
        do throws(FileError) {
            _ = try Self.place(of: path)
        } catch {
            var failure = CommandFailure.usage(error.description)
            if error.errno == .isDirectory { failure.hint = "name a file in the directory" }
            throw failure
        }
    }

    /// Returns the directory and the name of a file that does not have to exist.
    private static func place(
        of path: FilePath
    ) throws(FileError) -> (folder: Directory, name: FilePath.Component) {
        let above = path.removingLastComponent()
        let folder = try Directory.open(above.isEmpty ? "." : above)
        guard let name = path.lastComponent, name.kind == .regular,
            try folder.status(FilePath(name))?.kind != .directory
        else { throw FileError("create", path: path, errno: .isDirectory) }
        return (folder, name)
    }

    /// Adds the download, waits for its end, moves the file, and removes the download from the daemon.
    func collect(from client: ControlClient) async throws(ControlError) -> Ending {
        try await client.makeSession(session, configuration: settings)
        // What an interrupted command has left, and cannot complete any more, is not this command's failure.
        // A completed one may be that of another command, which has just moved the file.
        let earlier = try await client.tasks(in: session)
        if earlier.contains(where: { [.failed, .cancelled].contains($0.state) }) {
            try await client.removeSession(session)
            try await client.makeSession(session, configuration: settings)
        }
        let ids = try await client.createTasks([request], in: session)
        for try await event in try await client.events(of: session) where event.task == ids[0] {
            guard [.completed, .failed, .cancelled].contains(event.kind) else { continue }
            // Before the file is moved: then another command may remove the session.
            let task = try await client.task(ids[0])
            guard let ending = end(of: event, from: client) else { continue }
            if case .failure(let failure) = ending {
                // The file stays at the daemon until it could be moved.
                if event.kind != .completed { try await client.removeSession(session) }
                return .failure(failure)
            }
            try await client.removeSession(session)
            return .success(task)
        }
        throw .lost(client.path, after: nil)
    }

    /// Returns success, after moving the file, or the failure if the event ends the download; `nil` for other events.
    private func end(
        of event: SessionEvent,
        from client: ControlClient
    ) -> Result<Void, CommandFailure>? {
        switch event.kind {
        case .completed:
            return Result.catching { () throws(CommandFailure) in try move(event, from: client) }
        case .failed:
            var failure = CommandFailure(
                status: .transferFailed,
                message: event.failure?.reason ?? "the download failed",
                hint: nil,
                retryAdvice: .later
            )
            let isTransient = event.failure?.status.map(ResponseSummary.transientStatuses.contains)
            if event.failure?.kind == .refused, isTransient != true {
                failure.status = .transferRefused
            }
            if event.failure?.kind == .wrongContent { failure.status = .digestMismatch }
            return .failure(failure)
        case .cancelled:
            return .failure(
                CommandFailure(
                    status: .interrupted,
                    message: "the download was cancelled",
                    hint: nil,
                    retryAdvice: .now
                )
            )
        default: return nil
        }
    }

    private func move(
        _ event: SessionEvent,
        from client: ControlClient
    ) throws(CommandFailure) {
        guard let location = event.location, client.downloads?.accepts(location) ?? false else {
            throw CommandFailure(
                status: .daemonRefused,
                message: "the daemon has no file of the download that this user may take",
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
    private static func move(_ source: FilePath, to path: FilePath) throws(FileError) {
        let (folder, name) = try place(of: path)
        guard let old = source.lastComponent else {
            throw FileError("open", path: source, errno: .isDirectory)
        }
        let from = try Directory.open(source.removingLastComponent())
        do throws(FileError) {
            try from.rename(old, to: name, in: folder)
        } catch {
            guard error.errno == .improperLink else {
                throw FileError("create", path: path, errno: error.errno)
            }
            try copy(old, of: from, to: name, in: folder)
            try from.remove(old)
        }
        try folder.synchronize()
    }

    private static func copy(
        _ old: FilePath.Component,
        of from: Directory,
        to name: FilePath.Component,
        in folder: Directory
    ) throws(FileError) {
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        guard let temporary = FilePath.Component(".\(name.string).\(mark).tmp"),
            let source = try from.file(reading: FilePath(old))
        else {
            throw FileError("open", path: from.path.appending(old), errno: .noSuchFileOrDirectory)
        }
        do throws(FileError) {
            let file = try folder.file(creating: FilePath(temporary))
            try file.copyContent(of: source)
            try file.synchronize()
            try folder.rename(temporary, to: name, in: folder)
        } catch {
            // The first error is the one to report.
            _ = try? folder.remove(temporary)
            throw error
        }
    }
}
