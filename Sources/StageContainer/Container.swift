import Glibc
public import StageModel
public import StageSystem
public import SystemPackage

/// A container as the engine sees it: the shared directory of an application group, writable.
///
/// Any number of processes may have it open. What must not happen at once is kept apart by locks that
/// the kernel frees when their owner dies: one on each pack (``PackLock``), one on each staging area.
public final class Container: Sendable {
    /// The container as readers see it.
    public let reader: ContainerReader
    /// Where part files are kept.
    public let downloads: Directory
    let packs: Directory
    let generations: Directory
    let staging: Directory
    let locks: Directory
    let manifests: Directory
    let histories: Directory
    let purpose: Purpose

    /// The reason why a process opens a container.
    public enum Purpose: Sendable {
        /// Work that a file system without room puts an end to.
        case usual
        /// Removing: where no lock file can be made, the spare one may be used up.
        case makingRoom
    }

    /// The directory of the container.
    public var root: Directory { reader.root }

    /// Opens the container at `path`, making it where it is missing.
    ///
    /// - Throws: ``ContainerError/unknownFormat(_:found:known:)`` if a later version of StagePack made
    ///   it; ``ContainerError/notAContainer(_:found:)`` if it is a directory with other files;
    ///   ``ContainerError/file(_:)`` if it cannot be written.
    public static func make(_ path: FilePath) throws(ContainerError) -> Container {
        let root = try ContainerError.wrapping { () throws(FileError) in
            // The system's containers are for all users, whatever the umask of root's shell.
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

    /// Refuses a directory that has other uses: what is there could be removed, or take the names of
    /// what a container has.
    private static func checkForOtherFiles(_ root: Directory) throws(ContainerError) {
        let entries = try ContainerError.wrapping { () throws(FileError) in try root.entries() }
        // A file system that is mounted there has a folder of its own.
        let known = ContainerLayout.known.union(["lost+found"])
        for entry in entries.sorted(by: { $0.name.string < $1.name.string })
        where !known.contains(entry.name) && !Directory.isTemporary(entry.name) {
            throw .notAContainer(root.path, found: entry.name)
        }
    }

    /// Opens the container at `path` for changing it, or returns `nil` if there is none.
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
        // What exists is left as it is: 'doctor' tells of modes, and does not change them.
        packs = try root.existing(ContainerLayout.packs)
        generations = try root.existing(ContainerLayout.generations)
        staging = try root.existing(ContainerLayout.staging)
        downloads = try root.existing(ContainerLayout.downloads)
        locks = try root.existing(ContainerLayout.locks)
        manifests = try root.existing(ContainerLayout.manifest)
        histories = try root.existing(ContainerLayout.history)
        reader = ContainerReader(root: root, packs: packs)
    }

    /// Returns how much of the container's file system may still be filled.
    public func freeSpace() throws(ContainerError) -> FreeSpace {
        try ContainerError.wrapping { () throws(FileError) in try root.freeSpace() }
    }

    /// Waits until everything that was written into the container is on disk.
    public func synchronize() throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in try root.synchronizeFileSystem() }
    }

    /// Returns whether this process may change the container, without changing it.
    public func isWritable() -> Bool {
        root.isWritable
    }

    /// Takes the lock on a pack, or returns `nil` if another process or task works on it.
    public func attemptLock(_ id: PackID) throws(ContainerError) -> PackLock? {
        try ContainerError.wrapping { () throws(FileError) in
            let file = try lockFile(id.component, in: locks)
            guard let lock = try FileLock.attempt(file, mode: .exclusive) else { return nil }
            return PackLock(id: id, lock: lock)
        }
    }
}

/// The right to fetch, publish or remove one pack, held while the value lives.
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
    /// Opens a directory of a container, making it where it is missing.
    fileprivate func existing(_ name: FilePath.Component) throws(FileError) -> Directory {
        if let existing = try directory(FilePath(name)) { return existing }
        return try makeDirectory(FilePath(name), exactly: .directory)
    }
}
