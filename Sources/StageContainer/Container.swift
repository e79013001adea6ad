import Glibc
public import StageModel
public import StageSystem
public import SystemPackage

/// Write access to a container, the shared directory of an application group.
///
/// Any number of processes may open it. Locks exclude conflicting operations: one per pack (``PackLock``) and
/// one per staging area. The kernel releases them when the owning process dies.
public final class Container: Sendable {
    /// Read access to the same container.
    public let reader: ContainerReader
    /// The directory of partial files.
    public let downloads: Directory
    let packs: Directory
    let generations: Directory
    let staging: Directory
    let locks: Directory
    let manifests: Directory
    let histories: Directory
    let purpose: Purpose

    /// The reason why a process opens a container.
    @nonexhaustive
    public enum Purpose: Sendable {
        /// Operations that fail if the file system is full.
        case usual
        /// Freeing space: if no lock file can be created, the spare one may be used.
        case makingRoom
    }

    /// The directory of the container.
    public var root: Directory { reader.root }

    /// Opens the container at `path`; creates it if it does not exist.
    ///
    /// - Throws: ``ContainerError/unknownFormat(_:found:known:)`` if a later version of StagePack created it;
    ///   ``ContainerError/notAContainer(_:found:)`` if the directory contains other files;
    ///   ``ContainerError/file(_:)`` if it cannot be written.
    public static func make(_ path: FilePath) throws(ContainerError) -> Container {
        let root = try ContainerError.wrapping { () throws(FileError) in
            // A container of the system is for all users, regardless of the umask of root's shell.
            try geteuid() == 0
                ? Directory.make(path, exactly: .directory) : Directory.make(path)
        }
        if try ContainerRecord.read(from: root) == nil {
            try checkForOtherFiles(root)
            try JSONRecord.write(
                ContainerRecord(formatVersion: ContainerLayout.formatVersion),
                to: ContainerLayout.record,
                in: root,
                durably: true
            )
        }
        return try ContainerError.wrapping { () throws(FileError) in
            for name in ContainerLayout.directories {
                _ = try root.makeDirectory(FilePath(name), exactly: .directory)
            }
            let container = try Container(root: root, .usual)
            container.keepSpareLock()
            return container
        }
    }

    /// Throws if ``make(_:)`` would refuse the directory at `path` for its files; changes nothing.
    package static func checkForOtherFiles(at path: FilePath) throws(ContainerError) {
        let root: Directory
        do throws(FileError) {
            root = try Directory.open(path)
        } catch {
            if error.errno == .noSuchFileOrDirectory { return }
            throw .file(error)
        }
        guard try ContainerRecord.read(from: root) == nil else { return }
        try checkForOtherFiles(root)
    }

    /// Throws if the directory is used for other purposes, since a container could overwrite or remove files
    /// there.
    private static func checkForOtherFiles(_ root: Directory) throws(ContainerError) {
        let entries = try ContainerError.wrapping { () throws(FileError) in try root.entries() }
        // The directory of a mounted file system contains `lost+found`.
        let known = ContainerLayout.known.union(["lost+found"])
        for entry in entries.sorted(by: { $0.path.string < $1.path.string })
        where !known.contains(entry.name) && !Directory.isTemporary(entry.name) {
            throw .notAContainer(root.path, found: entry.name)
        }
    }

    /// Opens the container at `path` for writing, or returns `nil` if there is none.
    public static func open(
        _ path: FilePath,
        for purpose: Purpose = .usual
    ) throws(ContainerError) -> Container? {
        guard let reader = try ContainerReader.open(path) else { return nil }
        return try ContainerError.wrapping { () throws(FileError) in
            try Container(root: reader.root, purpose)
        }
    }

    private init(root: Directory, _ purpose: Purpose) throws(FileError) {
        self.purpose = purpose
        // Existing directories stay as they are: `doctor` reports wrong modes.
        packs = try root.existing(ContainerLayout.packs)
        generations = try root.existing(ContainerLayout.generations)
        staging = try root.existing(ContainerLayout.staging)
        downloads = try root.existing(ContainerLayout.downloads)
        locks = try root.existing(ContainerLayout.locks)
        manifests = try root.existing(ContainerLayout.manifest)
        histories = try root.existing(ContainerLayout.history)
        reader = ContainerReader(root: root, packs: packs)
    }

    /// Returns whether this process has permission to change the container; changes nothing.
    public func isWritable() -> Bool {
        root.isWritable
    }

    /// Returns the packs that have a lock file, which processes create to stage, publish or remove a pack.
    package func packsWithLocks() throws(ContainerError) -> [PackID] {
        let entries = try ContainerError.wrapping { () throws(FileError) in try locks.entries() }
        // The other names begin with a dot, which no identifier does.
        return entries.compactMap { try? PackID($0.path.string) }.sorted()
    }

    /// Acquires the lock on a pack, or returns `nil` if another process or task holds it.
    public func attemptLock(_ id: PackID) throws(ContainerError) -> PackLock? {
        try ContainerError.wrapping { () throws(FileError) in
            let file = try lockFile(id.component, in: locks)
            guard let lock = try FileLock.attempt(file, mode: .exclusive) else { return nil }
            return PackLock(id: id, lock: lock)
        }
    }

    /// Acquires the lock on a pack; suspends the task for `limit` at most while another process or task holds it.
    ///
    /// - Returns: `nil` if others held the lock until then, or until the task was cancelled.
    package func waitForLock(
        _ id: PackID,
        within limit: Duration
    ) async throws(ContainerError) -> PackLock? {
        do throws(FileError) {
            let lock = try await waitForFileLock(id.component, in: locks, within: limit)
            guard let lock else { return nil }
            return PackLock(id: id, lock: lock)
        } catch {
            throw .file(error)
        }
    }
}

/// The exclusive right to stage, publish or remove one pack, held until the value is destroyed.
public final class PackLock: Sendable {
    /// The pack.
    public let id: PackID
    private let lock: FileLock

    init(id: PackID, lock: consuming FileLock) {
        self.id = id
        self.lock = lock
    }
}

extension Directory {
    /// Opens a directory of a container; creates it if it does not exist.
    fileprivate func existing(_ name: FilePath.Component) throws(FileError) -> Directory {
        if let existing = try directory(FilePath(name)) { return existing }
        return try makeDirectory(FilePath(name), exactly: .directory)
    }
}
