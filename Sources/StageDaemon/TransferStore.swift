import StageControl
import StageSystem
import StageTransfer
import SystemPackage

/// The files of the daemon.
///
/// ```
/// journal.sqlite           what must not be forgotten
/// lock                     one daemon works in a directory
/// parts/<name>.…           content that is not complete, with a record of what it is
/// snapshots/<name>         copies of files to upload
/// staged/<user>/<task>     complete files, each its user's
/// ```
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
            parts = try root.makeDirectory("parts")
            snapshots = try root.makeDirectory("snapshots")
            staged = try root.makeDirectory("staged")
            // Users reach their own files, and see no others.
            for name in ["parts", "snapshots"] as [FilePath.Component] {
                try root.changeMode(of: name, to: .ownerReadWriteExecute)
            }
            try root.changeMode(of: "staged", to: Self.passable)
            if owner.user == 0 { try root.changeMode(of: ".", to: Self.passable) }
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
        try staged.status(FilePath("\(user)/\(task)")) != nil
    }

    /// The directory of a user's complete files, made where it is missing.
    func directory(of user: UInt32) throws(FileError) -> Directory {
        guard let name = FilePath.Component("\(user)") else {
            throw FileError("make", staged.path, .invalidArgument)
        }
        if let directory = try staged.directory(FilePath(name)) { return directory }
        let directory = try staged.makeDirectory(FilePath(name))
        try staged.changeMode(of: name, to: .ownerReadWriteExecute)
        if user != owner.user {
            try staged.changeOwner(
                of: name,
                to: UserIdentity(user: user, group: Self.group(of: user))
            )
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
        if user != owner.user {
            try parts.changeOwner(
                of: part,
                to: UserIdentity(user: user, group: Self.group(of: user))
            )
        }
        try parts.changeMode(of: part, to: [.ownerReadWrite, .groupRead, .otherRead])
        try parts.rename(part, to: name, in: directory, replacing: false)
        return true
    }

    /// Gives verified content its place after a crash, and returns whether it is there.
    func finishPlacing(_ task: TaskRecord, of user: UInt32) throws(FileError) -> Bool {
        if try !isStaged(task.id, user: user) {
            guard let part = try generation(of: task.part) else { return false }
            _ = try stage(part, as: task.id, for: user)
            try directory(of: user).synchronize()
        }
        try removeFiles(of: task.part)
        return true
    }

    /// The file of the current generation of a part; of one without a record, the only one there is.
    private func generation(of name: String) throws(FileError) -> FilePath.Component? {
        guard let component = FilePath.Component(name) else { return nil }
        // One that cannot be read is fetched again.
        if let part = try? PartFile.open(component, in: parts), part.total == part.length {
            return part.fileName
        }
        let files = try parts.entries().map(\.name).filter { $0.string.hasPrefix(name + ".part.") }
        return files.count == 1 ? files.first : nil
    }

    /// Removes the complete file of a task, if its user has left it there.
    func removeStaged(_ task: Int64, user: UInt32) throws(FileError) {
        guard let name = FilePath.Component("\(task)"),
            let directory = try staged.directory(FilePath("\(user)"))
        else { return }
        try directory.remove(name)
    }

    /// Copies a file to upload, if `user` may read it, and waits until the copy is on disk.
    func snapshot(
        _ path: FilePath,
        as name: FilePath.Component,
        for user: UserIdentity
    ) throws(FileError) -> Int64 {
        let source = try File.open(readingRegular: path, as: user)
        let copy = try snapshots.file(creating: FilePath(name))
        do throws(FileError) {
            try copy.copyContent(of: source)
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
        let part: PartFile
        do throws(TransferError) {
            guard let component = FilePath.Component(name) else { return }
            part = try PartFile.open(component, in: parts)
            try part.remove()
        } catch {
            if case .storage(let error) = error { throw error }
        }
    }

    /// Moves all complete files aside, because nothing is known of them any more.
    static func setAside(_ path: FilePath) throws(DaemonError) {
        do throws(FileError) {
            let root = try makeRoot(path)
            let mark = UInt64.random(in: 0 ... .max)
            guard try root.directory("staged") != nil,
                let name = FilePath.Component("staged.damaged-\(String(mark, radix: 36))")
            else { return }
            try root.rename("staged", to: name, in: root)
            try root.synchronize()
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
            let file = try root.file(updating: "lock")
            // The journal knows what clients said in confidence; what SQLite makes beside it is made
            // like it.
            _ = try root.file(updating: "journal.sqlite", permissions: .ownerReadWrite)
            return try FileLock.attempt(file, .exclusive)
        } catch {
            throw .file(error)
        }
    }

    /// Removes the complete files of tasks that nothing is known of.
    func sweepStaged(keeping tasks: Set<Int64>) throws(FileError) {
        for user in try staged.entries() {
            guard let directory = try staged.directory(FilePath(user.name)) else { continue }
            for entry in try directory.entries() {
                guard let task = Int64(entry.name.string), !tasks.contains(task) else { continue }
                try directory.remove(entry.name)
            }
        }
    }

    /// Users reach what is theirs, and see nothing on the way.
    private static let passable: FilePermissions = [
        .ownerReadWriteExecute, .groupExecute, .otherExecute,
    ]

    /// Removes all files whose names are none of `names`.
    func sweep(keeping names: Set<String>) throws(FileError) {
        for entry in try snapshots.entries() where !names.contains(entry.name.string) {
            try snapshots.remove(entry.name)
        }
        for entry in try parts.entries() {
            let name = entry.name.string.prefix { $0 != "." }
            if !names.contains(String(name)) { try parts.remove(entry.name) }
        }
    }

    private static func group(of user: UInt32) -> UInt32 {
        Account(user: user)?.group ?? user
    }
}
