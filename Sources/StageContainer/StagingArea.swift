public import StageModel
public import StageSystem
import Synchronization
import SystemPackage

/// A generation being prepared: a directory of `staging/`, which readers do not use.
///
/// Until it is published, other users can neither read it nor lock a file in it. Its lease file is locked
/// exclusively for the lifetime of the value, so that `gc` can distinguish it from areas of dead processes.
/// The owner must either publish the area or call ``discard()``; after a crash,
/// ``Container/removeLeftovers(now:offering:)`` deletes it.
public final class StagingArea: Sendable {
    /// The pack to stage.
    public let id: PackID
    /// The directory of the area.
    public let directory: Directory
    /// The directory for the pack's files.
    public let content: Directory
    /// `true` if an earlier process used the area and may have left content.
    public let isContinued: Bool
    let name: FilePath.Component
    private let staging: Directory
    private let lock: Mutex<FileLock?>

    init(
        id: PackID,
        staging: Directory,
        name: FilePath.Component,
        directory: Directory,
        lock: consuming FileLock
    ) throws(FileError) {
        self.id = id
        self.staging = staging
        self.name = name
        self.directory = directory
        let content = FilePath(ContainerLayout.content)
        isContinued = !(try directory.createDirectory(content))
        self.content = try directory.makeDirectory(content, exactly: .directory)
        self.lock = Mutex(lock)
    }

    /// Deletes the area and its content.
    public func discard() throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in _ = try staging.removeTree(name) }
    }

    /// Sets the permission bits of a generation, and deletes temporary files that a killed run left.
    func settleForReaders() throws(FileError) {
        for entry in try directory.entries() {
            if Directory.isTemporary(entry.name) {
                try directory.removeTree(entry.name)
            } else if entry.kind == .file {
                try directory.file(reading: entry.path)?.setMode(.file)
            }
        }
        try content.setMode(.directory)
    }

    /// Makes the generation accessible to readers and releases its lock, after the move out of `staging/`.
    func open() throws(FileError) {
        try directory.setMode(.directory)
        lock.withLock { $0 = nil }
    }

    /// Keeps readers out again, before a generation that could not be published moves back to `staging/`.
    ///
    /// The area is not locked then: `gc` may delete it before its owner does.
    func close() throws(FileError) { try directory.setMode(.ownerReadWriteExecute) }
}

extension Container {
    /// Creates a staging area for the pack, or resumes the area of a dead process that staged the same
    /// content.
    ///
    /// The caller holds the lock on the pack.
    ///
    /// Callers must verify content of a resumed area like content from a server.
    public func makeStagingArea(
        _ lock: PackLock,
        continuing digest: Digest
    ) throws(ContainerError) -> StagingArea {
        try ContainerError.wrapping { () throws(FileError) in
            let creation = try waitForCreationLock()
            guard let name = lock.id.nameOfArea(for: digest) else {
                throw FileError("create", path: staging.path, errno: .invalidArgument)
            }
            let area = try area(named: name, for: lock.id)
            _ = consume creation
            return area
        }
    }

    /// Creates an empty staging area for the pack.
    ///
    /// The caller holds the lock on the pack.
    public func makeStagingArea(_ lock: PackLock) throws(ContainerError) -> StagingArea {
        try ContainerError.wrapping { () throws(FileError) in
            // `gc` must not find the area after its creation and before it is locked.
            let creation = try waitForCreationLock()
            let area = try area(named: try makeUniqueName(lock.id.text), for: lock.id)
            _ = consume creation
            return area
        }
    }

    /// Waits up to 300 seconds for a process that deletes abandoned areas, since these may contain many files.
    private func waitForCreationLock() throws(FileError) -> FileLock {
        try waitForLock(Self.creationLock, mode: .shared, seconds: 300)
    }

    /// Creates or resumes the area of this name, which no running process uses.
    private func area(
        named name: FilePath.Component,
        for id: PackID
    ) throws(FileError) -> StagingArea {
        if let status = try staging.status(FilePath(name)) {
            if status.kind == .directory {
                try makeMovable(name, for: id)
            } else {
                try staging.removeTree(name)
            }
        }
        let directory = try staging.makeDirectory(
            FilePath(name),
            exactly: .ownerReadWriteExecute
        )
        return try StagingArea(
            id: id,
            staging: staging,
            name: name,
            directory: directory,
            lock: try makeLease(in: directory)
        )
    }

    /// Replaces an area that cannot be renamed, and so not be published, by a new directory with its files.
    ///
    /// On overlayfs a directory of a lower layer cannot be renamed, and only an attempt shows that. The lock
    /// for the creation of areas keeps `gc` away from the other name. A crash in between costs the progress
    /// of the area at most.
    private func makeMovable(_ name: FilePath.Component, for id: PackID) throws(FileError) {
        let other = try makeUniqueName(id.text)
        do throws(FileError) {
            try staging.rename(name, toUnused: other, in: staging)
        } catch {
            guard error.errno == .improperLink, let old = try staging.directory(FilePath(name))
            else { throw error }
            let path = FilePath(other)
            try old.moveEntries(
                to: try staging.makeDirectory(path, exactly: .ownerReadWriteExecute)
            )
            try staging.removeTree(name)
        }
        try staging.rename(other, toUnused: name, in: staging)
    }

    /// Replaces the lease file that an earlier run left by a new, locked one.
    ///
    /// Another process may have opened and locked the old file while it was accessible. The lock on the pack
    /// proves that the area's earlier owner is dead.
    private func makeLease(in directory: Directory) throws(FileError) -> FileLock {
        let name = ContainerLayout.lease
        for entry in try directory.entries() {
            let kind: FileStatus.Kind =
                entry.name == ContainerLayout.content ? .directory : .file
            // Removes the files of an archive that an earlier run has unpacked, too: plans count their space as free.
            if entry.kind != kind { try directory.removeTree(entry.name) }
        }
        let temporary = directory.temporaryName(for: name)
        let file = try directory.file(
            creating: temporary,
            for: name,
            permissions: .ownerReadWrite
        )
        try file.ensureMode(.ownerReadWrite)
        // One byte for readers to read, with an access time of zero.
        try file.write([0x0A].span, at: 0)
        try file.setAccessTime(0)
        guard let lease = try FileLock.attempt(file, mode: .exclusive) else {
            throw FileError("lock", path: directory.path, errno: .resourceTemporarilyUnavailable)
        }
        try directory.rename(temporary, over: name)
        return lease
    }

    func makeUniqueName(_ prefix: String) throws(FileError) -> FilePath.Component {
        let suffix = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        guard let name = FilePath.Component("\(prefix.prefix(64)).\(suffix)") else {
            throw FileError("create", path: staging.path, errno: .invalidArgument)
        }
        return name
    }

    /// Held shared while a staging area is created, and exclusively while abandoned ones are deleted.
    ///
    /// The ID of a pack never begins with a dot, so the name is not that of a pack's lock.
    static let creationLock: FilePath.Component = ".staging"
}

extension ContainerReader {
    /// Returns whether a staging area exists for this content of the pack, in use or abandoned.
    public func hasStagingArea(
        of id: PackID,
        for digest: Digest
    ) throws(ContainerError) -> Bool {
        guard let name = id.nameOfArea(for: digest) else { return false }
        return try ContainerError.wrapping { () throws(FileError) in
            try root.status(FilePath(ContainerLayout.staging).appending(name)) != nil
        }
    }
}

extension PackID {
    /// Returns the name of a resumable staging area; `nil` if it would not be a valid file name.
    ///
    /// Contains the whole ID, because packs with equal content have the same digest.
    func nameOfArea(for digest: Digest) -> FilePath.Component? {
        FilePath.Component("\(text).\(digest)")
    }
}

extension Directory {
    /// Moves all files and links to another directory, with new directories for those below this one.
    fileprivate func moveEntries(to target: Directory) throws(FileError) {
        for entry in try entries() {
            guard entry.kind == .directory, let below = try directory(entry.path) else {
                try rename(entry.name, toUnused: entry.name, in: target)
                continue
            }
            let made = try target.makeDirectory(entry.path, exactly: .ownerReadWriteExecute)
            try below.moveEntries(to: made)
        }
    }
}
