import Logging
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// The files of the daemon.
///
/// ```
/// journal.sqlite           0600  sessions, tasks and events
/// task-numbers             0600  the highest number of a task so far
/// lock                     0600  one daemon works in a directory
/// parts/<name>.…           0700  content that is not complete, with a record of what it is (0600)
/// snapshots/<name>         0700  copies of files to upload (0600)
/// staged/<user>/<task>     0711  directories of users (0700, the user's) with complete files (0600)
/// ```
///
/// Names in `staged/<user>` are the user's to make: whatever stands there is an error of that user's
/// tasks and of nothing else.
struct TransferStore: Sendable {
    let root: Directory
    let parts: Directory
    let snapshots: Directory
    private let staged: Directory
    private let owner = UserIdentity.current

    /// Opens the store at `path`, and makes what is missing.
    init(_ path: FilePath) throws(DaemonError) {
        do throws(FileError) {
            root = try Self.makeRoot(path)
            parts = try root.makeDirectory("parts", permissions: .privateDirectory)
            snapshots = try root.makeDirectory("snapshots", permissions: .privateDirectory)
            staged = try root.makeDirectory("staged", permissions: .privateDirectory)
            for directory in [parts, snapshots] { try directory.setMode(.privateDirectory) }
            // Users reach their own files, and see no others.
            try staged.setMode(Self.passable)
            if owner.user == 0 { try root.setMode(Self.passable) }
        } catch {
            throw .file(error)
        }
    }

    /// The path of a task's complete file.
    func location(of task: Int64, user: UInt32) -> FilePath {
        staged.path.appending("\(user)").appending("\(task)")
    }

    /// Whether the complete file of a task is where its user finds it.
    func isStaged(_ task: Int64, user: UInt32) throws(FileError) -> Bool {
        guard let directory = try openDirectory(of: user) else { return false }
        return try directory.status(FilePath("\(task)")) != nil
    }

    /// The directory of a user's complete files, or `nil` if there is none.
    func openDirectory(of user: UInt32) throws(FileError) -> Directory? {
        try staged.directory(unmounted: try Self.name(of: user))
    }

    /// The directory of a user's complete files, made where it is missing.
    func directory(of user: UInt32) throws(FileError) -> Directory {
        let name = try Self.name(of: user)
        try staged.createDirectory(FilePath(name), permissions: .privateDirectory)
        guard let directory = try staged.directory(unmounted: name) else {
            throw FileError(
                "open",
                path: staged.path.appending(name),
                errno: .noSuchFileOrDirectory
            )
        }
        // A daemon that died may have made it and not given it away.
        if try directory.status().owner != user {
            try directory.setMode(.privateDirectory)
            try staged.changeOwner(of: name, to: Self.fileOwner(user))
        }
        return directory
    }

    /// Gives a complete part file its place among its user's files.
    ///
    /// - Returns: `false` if it has it already.
    func stage(
        _ part: FilePath.Component,
        as task: Int64,
        for user: UInt32
    ) throws(FileError) -> Bool {
        let directory = try directory(of: user)
        guard let name = FilePath.Component("\(task)") else { return false }
        if try directory.status(FilePath(name)) != nil { return false }
        try parts.changeMode(of: part, to: .privateFile)
        if user != owner.user { try parts.changeOwner(of: part, to: Self.fileOwner(user)) }
        try parts.rename(part, to: name, in: directory, replacing: false)
        return true
    }

    /// Gives verified content of a size its place after a crash, and returns whether it is there.
    func finishPlacing(
        _ task: TaskRecord,
        size: ByteCount,
        of user: UInt32
    ) throws(FileError) -> Bool {
        if try !isStaged(task.id, user: user) {
            // Not by way of a ``PartialFile``: after another boot that cuts a file off behind what its record
            // calls durable, and verified content is on disk whatever the record says.
            guard let file = task.file.flatMap({ FilePath.Component($0) }),
                let status = try parts.status(FilePath(file)),
                status.kind == .file, status.size == size.rawValue
            else { return false }
            _ = try stage(file, as: task.id, for: user)
            try directory(of: user).synchronize()
        }
        try removeFiles(of: task.part)
        return true
    }

    /// Removes the complete file of a task, if its user has left it there.
    func removeStaged(_ task: Int64, user: UInt32) throws(FileError) {
        guard let name = FilePath.Component("\(task)"),
            let directory = try openDirectory(of: user)
        else { return }
        try directory.remove(name)
    }

    /// Copies a file to upload, if `user` may read it, and waits until the copy is on disk.
    ///
    /// - Parameters:
    ///   - path: The file, regular and on a file system that stores it.
    ///   - name: The name of the copy.
    ///   - user: The user whose rights count.
    ///   - limit: The most bytes that the file may have, holes included, which are holes of the copy.
    /// - Returns: The size of the copy, holes included.
    /// - Throws: ``FileError`` with `EFBIG` if it has more than `limit` bytes.
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
            // The error that counts is the first one; what is left over is swept at the next start.
            _ = try? snapshots.remove(name)
            throw error
        }
    }

    /// Removes what belongs to a name among the parts and the copies.
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

    /// Removes what tasks had, and returns what is gone; what is left over is swept later.
    func discard(_ removed: Removed, of user: UInt32, _ logger: Logger) -> [HeldBytes.Item] {
        var gone: [HeldBytes.Item] = []
        func attempt(_ item: HeldBytes.Item, _ remove: () throws(FileError) -> Void) {
            do throws(FileError) {
                try remove()
                gone.append(item)
            } catch {
                logger.warning("A file is left over", metadata: ["error": "\(error)"])
            }
        }
        for task in removed.tasks {
            attempt(.staged(task)) { () throws(FileError) in try removeStaged(task, user: user) }
        }
        for part in removed.parts {
            attempt(.part(part)) { () throws(FileError) in try removeFiles(of: part) }
        }
        return gone
    }

    /// Moves all complete files aside, because nothing is known of them any more, and returns whether there
    /// were any users with such files.
    static func setAside(_ path: FilePath) throws(DaemonError) -> Bool {
        do throws(FileError) {
            let root = try makeRoot(path)
            let mark = UInt64.random(in: 0 ... .max)
            guard let staged = try root.directory("staged"), try !staged.entries().isEmpty,
                let name = FilePath.Component("staged.damaged-\(String(mark, radix: 36))")
            else { return false }
            try root.rename("staged", to: name, in: root)
            try root.synchronize()
            return true
        } catch {
            throw .file(error)
        }
    }

    /// Makes the directory where it is missing: others pass through it, and list nothing.
    private static func makeRoot(_ path: FilePath) throws(FileError) -> Directory {
        guard let name = path.lastComponent else { return try Directory.open(path) }
        let parent = try Directory.make(path.removingLastComponent())
        return try parent.makeDirectory(FilePath(name), permissions: passable)
    }

    /// Takes the lock of a store, or returns `nil` if another daemon has it.
    static func lock(_ path: FilePath) throws(DaemonError) -> FileLock? {
        do throws(FileError) {
            let root = try makeRoot(path)
            // Whoever may open a lock file may hold the lock.
            let file = try root.file(updating: "lock", permissions: .privateFile)
            try file.setMode(.privateFile)
            // The journal has secrets of clients; SQLite gives the files beside it the same mode.
            try root.file(updating: "journal.sqlite", permissions: .privateFile)
                .setMode(.privateFile)
            return try FileLock.attempt(file, mode: .exclusive)
        } catch {
            throw .file(error)
        }
    }

    /// Removes the complete files of tasks that are not known any more: numbers up to `last` that are
    /// not among `tasks`.
    ///
    /// Directories of users may hold anything: what cannot be removed is passed over.
    ///
    /// - Returns: The errors, at most one a user.
    func sweepStaged(keeping tasks: Set<Int64>, upTo last: Int64) -> [FileError] {
        Self.collectingErrors { collect throws(FileError) in
            for user in try staged.entries() {
                collect { () throws(FileError) in
                    var error: FileError?
                    var rest = Self.sweepLimit
                    guard let directory = try staged.directory(unmounted: user.name) else { return }
                    try directory.forEachEntry { entry in
                        rest -= 1
                        if let task = Int64(entry.name.string), task <= last, !tasks.contains(task)
                        {
                            do throws(FileError) {
                                try directory.remove(entry.name)
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

    /// The most names that are looked at in one user's directory: an attacker may make any number.
    private static let sweepLimit = 1_000_000

    /// Removes all files whose names are none of `names`, and returns what could not be removed.
    func sweep(keeping names: Set<String>) -> [FileError] {
        Self.collectingErrors { collect throws(FileError) in
            for entry in try snapshots.entries() where !names.contains(entry.name.string) {
                collect { () throws(FileError) in try snapshots.remove(entry.name) }
            }
            for entry in try parts.entries() {
                let name = entry.name.string.prefix { $0 != "." }
                guard !names.contains(String(name)) else { continue }
                collect { () throws(FileError) in try parts.remove(entry.name) }
            }
        }
    }

    /// Runs `body`, which does single steps by the closure it is given; an error of one step ends no
    /// other.
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

    /// Users reach what is theirs, and see nothing on the way.
    private static let passable: FilePermissions = [
        .ownerReadWriteExecute, .groupExecute, .otherExecute,
    ]

    private static func name(of user: UInt32) throws(FileError) -> FilePath.Component {
        guard let name = FilePath.Component("\(user)") else {
            throw FileError("make", path: FilePath("\(user)"), errno: .invalidArgument)
        }
        return name
    }

    /// The owner of a user's files; of a user without an account the group stays what it is.
    private static func fileOwner(_ user: UInt32) -> UserIdentity {
        UserIdentity(user: user, group: Account(user: user)?.group ?? .max, groups: [])
    }
}
