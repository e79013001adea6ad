import Logging
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// State directory of the daemon, and the files in it.
///
/// ```
/// journal.sqlite           0600  sessions, tasks and events
/// task-numbers             0600  high-water mark of task identifiers
/// lock                     0600  held by the daemon that uses the directory
/// parts/<name>.…           0700  partial downloads, each with its record (0600)
/// snapshots/<name>         0700  copies of files to upload (0600)
/// staged/<user>/<task>     0711  finished downloads (0600) in directories of their users (0700)
/// ```
///
/// Users can create any names in `staged/<user>`, and mount file systems of their own on each of them: unexpected files
/// there affect only that user's tasks, and nothing here waits for a mounted file system.
struct TransferFiles: Sendable {
    let root: Directory
    let parts: Directory
    let snapshots: Directory
    private let finished: Directory
    private let owner = UserIdentity.current

    /// Opens the state directory at `path`, and creates its missing subdirectories.
    init(_ path: FilePath) throws(DaemonError) {
        do throws(FileError) {
            root = try Self.makeRoot(path)
            parts = try root.makeDirectory("parts", permissions: .privateDirectory)
            snapshots = try root.makeDirectory("snapshots", permissions: .privateDirectory)
            finished = try root.makeDirectory("staged", permissions: .privateDirectory)
            for directory in [parts, snapshots] { try directory.setMode(.privateDirectory) }
            // Users can reach their own files, but list no directory.
            try finished.setMode(Self.passable)
            if owner.user == 0 { try root.setMode(Self.passable) }
        } catch {
            throw .file(error)
        }
    }

    /// Returns the path of a task's finished download.
    func finishedPath(of task: Int64, user: UInt32) -> FilePath {
        finished.path.appending("\(user)").appending("\(task)")
    }

    /// Returns whether the finished download of a task is in its user's directory.
    func hasFinished(_ task: Int64, user: UInt32) throws(FileError) -> Bool {
        guard let directory = try openDirectory(of: user) else { return false }
        return try directory.status(unmounted: try Self.name(of: task)) != nil
    }

    /// Opens the directory of a user's finished downloads, or returns `nil` if there is none.
    func openDirectory(of user: UInt32) throws(FileError) -> Directory? {
        try finished.directory(unmounted: try Self.name(of: user))
    }

    /// Opens the directory of a user's finished downloads, and creates it if it is missing.
    func directory(of user: UInt32) throws(FileError) -> Directory {
        let name = try Self.name(of: user)
        try finished.createDirectory(FilePath(name), permissions: .privateDirectory)
        guard let directory = try finished.directory(unmounted: name) else {
            throw FileError(
                "open",
                path: finished.path.appending(name),
                errno: .noSuchFileOrDirectory
            )
        }
        // A daemon that crashed may have created it without changing its owner.
        if try directory.status().owner != user {
            try directory.setMode(.privateDirectory)
            try finished.changeOwner(of: name, to: Self.fileOwner(user))
        }
        return directory
    }

    /// Moves a complete part file into its user's directory.
    ///
    /// - Returns: `false` if it is already there.
    func moveToUser(
        _ part: FilePath.Component,
        as task: Int64,
        for user: UInt32
    ) throws(FileError) -> Bool {
        let directory = try directory(of: user)
        let name = try Self.name(of: task)
        if try directory.status(unmounted: name) != nil { return false }
        try parts.changeMode(of: part, to: .privateFile)
        if user != owner.user { try parts.changeOwner(of: part, to: Self.fileOwner(user)) }
        // Only the user could take the name meanwhile, who would lose that file.
        try parts.rename(part, toUnused: name, in: directory)
        return true
    }

    /// Completes the move of a verified download after a crash; returns `false` if its file is missing or has another
    /// size.
    func finishMove(
        _ task: TaskRecord,
        size: ByteCount,
        of user: UInt32
    ) throws(FileError) -> Bool {
        if try !hasFinished(task.id, user: user) {
            // ``PartialFile`` would truncate the file to its recorded checkpoint after a reboot, but verified content is
            // durable regardless of the record.
            guard let file = task.file.flatMap({ FilePath.Component($0) }),
                let status = try parts.status(FilePath(file)),
                status.kind == .file, status.size == size.rawValue
            else { return false }
            _ = try moveToUser(file, as: task.id, for: user)
        }
        // Synced also if the file was moved before: the process may have been killed, or the sync failed, after the rename.
        try directory(of: user).synchronize()
        try removeFiles(of: task.part)
        return true
    }

    /// Removes the finished download of a task, if its user has not moved it away.
    func removeFinished(_ task: Int64, user: UInt32) throws(FileError) {
        guard let directory = try openDirectory(of: user) else { return }
        try directory.remove(try Self.name(of: task))
    }

    /// Copies a file to upload, if `user` may read it; returns once the copy is durable.
    ///
    /// - Parameters:
    ///   - path: The file, which must be a regular file on a file system with storage.
    ///   - name: The name of the copy.
    ///   - user: The user whose rights apply.
    ///   - limit: The maximum size of the file, holes included; holes stay holes in the copy.
    /// - Returns: The size of the copy, holes included.
    /// - Throws: ``FileError`` with `EFBIG` if the file is larger than `limit`.
    func snapshot(
        _ path: FilePath,
        as name: FilePath.Component,
        for user: UserIdentity,
        limit: ByteCount
    ) throws(FileError) -> Int64 {
        let source = try File.open(readingRegular: path, as: user)
        let copy = try snapshots.file(creating: FilePath(name), permissions: .privateFile)
        do throws(FileError) {
            try copy.copyContent(of: source, limit: limit.rawValue)
            try copy.synchronize()
            try snapshots.synchronize()
            return try copy.status().size
        } catch {
            // Report the first error; the next start of the daemon removes what is left.
            _ = try? snapshots.remove(name)
            throw error
        }
    }

    /// Removes the part file or upload copy of a name.
    func removeFiles(of name: String) throws(FileError) {
        if let component = FilePath.Component(name) { try snapshots.remove(component) }
        let part: PartialFile
        do throws(TransferError) {
            guard let component = FilePath.Component(name) else { return }
            part = try PartialFile.open(component, in: parts)
            try part.remove()
        } catch {
            if case .storage(let error) = error { throw error }
        }
    }

    /// Removes the files of deleted tasks; returns those that are gone.
    ///
    /// The next start of the daemon removes the rest.
    func discard(_ removed: RemovedTasks, of user: UInt32, logger: Logger) -> [DiskQuota.Item] {
        var gone: [DiskQuota.Item] = []
        func attempt(_ item: DiskQuota.Item, by remove: () throws(FileError) -> Void) {
            do throws(FileError) {
                try remove()
                gone.append(item)
            } catch {
                logger.warning("A file could not be removed", metadata: error.metadata)
            }
        }
        for task in removed.tasks {
            attempt(.finished(task)) { () throws(FileError) in try removeFinished(task, user: user)
            }
        }
        for part in removed.parts {
            attempt(.part(part)) { () throws(FileError) in try removeFiles(of: part) }
        }
        return gone
    }

    /// Moves all finished downloads aside, since the journal with their tasks is lost; returns whether there were
    /// any.
    static func setAside(_ path: FilePath) throws(DaemonError) -> Bool {
        do throws(FileError) {
            let root = try makeRoot(path)
            let mark = UInt64.random(in: 0 ... .max)
            guard let finished = try root.directory("staged"), try !finished.entries().isEmpty,
                let name = FilePath.Component("staged.damaged-\(String(mark, radix: 36))")
            else { return false }
            try root.rename("staged", to: name, in: root)
            try root.synchronize()
            return true
        } catch {
            throw .file(error)
        }
    }

    /// Opens the state directory and creates it if it is missing, searchable but not listable for other users.
    private static func makeRoot(_ path: FilePath) throws(FileError) -> Directory {
        guard let name = path.lastComponent else { return try Directory.open(path) }
        let parent = try Directory.make(path.removingLastComponent())
        return try parent.makeDirectory(FilePath(name), permissions: passable)
    }

    /// Takes the lock of the state directory; waits for `limit` at most.
    ///
    /// - Returns: `nil` if another daemon had the lock until then, or until the task was cancelled.
    static func lock(
        _ path: FilePath,
        within limit: Duration
    ) async throws(DaemonError) -> FileLock? {
        do throws(FileError) {
            let root = try makeRoot(path)
            // Any user who can open a lock file could take the lock.
            let file = try root.file(updating: "lock", permissions: .privateFile)
            try file.setMode(.privateFile)
            // The journal contains secrets of clients; SQLite gives its further files the same mode.
            try root.file(updating: "journal.sqlite", permissions: .privateFile)
                .setMode(.privateFile)
            return try await FileLock.wait(for: file, mode: .exclusive, atMost: limit)
        } catch {
            throw .file(error)
        }
    }

    /// Removes finished downloads of unknown tasks: with identifiers up to `last` that are not in `tasks`.
    ///
    /// Skips files with other names, and files that cannot be removed.
    ///
    /// - Returns: The errors, at most one per user.
    func removeUnknownDownloads(keeping tasks: Set<Int64>, upTo last: Int64) -> [FileError] {
        Self.collectingErrors { collect throws(FileError) in
            for user in try finished.entries() {
                collect { () throws(FileError) in
                    var error: FileError?
                    var rest = Self.examinedLimit
                    guard let directory = try finished.directory(unmounted: user.name) else {
                        return
                    }
                    try directory.forEachName { name in
                        rest -= 1
                        if let task = Int64(name.string), task <= last, !tasks.contains(task) {
                            do throws(FileError) {
                                try directory.remove(try Self.name(of: task))
                            } catch let failure {
                                error = error ?? failure
                            }
                        }
                        return rest > 0
                    }
                    if let error { throw error }
                }
            }
        }
    }

    /// Maximum number of names examined in a user's directory, since a user can create any number.
    private static let examinedLimit = 1_000_000

    /// Removes all part files and upload copies except those named in `names`; returns the errors.
    func removeUnknownFiles(keeping names: Set<String>) -> [FileError] {
        Self.collectingErrors { collect throws(FileError) in
            for entry in try snapshots.entries() where !names.contains(entry.path.string) {
                collect { () throws(FileError) in try snapshots.remove(entry.name) }
            }
            for entry in try parts.entries() {
                let name = entry.path.string.prefix { $0 != "." }
                guard !names.contains(String(name)) else { continue }
                collect { () throws(FileError) in try parts.remove(entry.name) }
            }
        }
    }

    /// Runs `body` with a closure that runs a step and collects its error, so that later steps still run.
    private static func collectingErrors(
        _ body: ((() throws(FileError) -> Void) -> Void) throws(FileError) -> Void
    ) -> [FileError] {
        var errors: [FileError] = []
        do throws(FileError) {
            try body { step in
                do throws(FileError) {
                    try step()
                } catch {
                    errors.append(error)
                }
            }
        } catch {
            errors.append(error)
        }
        return errors
    }

    /// Mode of directories that other users can pass through but not list.
    private static let passable: FilePermissions = [
        .ownerReadWriteExecute, .groupExecute, .otherExecute,
    ]

    /// Returns the name of a user's directory, or of a task's file in it.
    static func name(of number: some BinaryInteger) throws(FileError) -> FilePath.Component {
        guard let name = FilePath.Component("\(number)") else {
            throw FileError("make", path: FilePath("\(number)"), errno: .invalidArgument)
        }
        return name
    }

    /// Returns the owner of a user's files.
    ///
    /// Without an account, the group stays unchanged.
    private static func fileOwner(_ user: UInt32) -> UserIdentity {
        UserIdentity(user: user, group: Account(user: user)?.group ?? .max, groups: [])
    }
}
