public import StageModel
public import StageSystem
import Synchronization
import SystemPackage

/// A generation in the making: a directory of `staging/` that no reader looks at.
///
/// Its owner's alone until it is published: other users can neither read it nor lock anything in it. The
/// area's lease file is locked exclusively while the area lives, so that a sweep can tell the areas of dead
/// processes. An area that was not published must be given to ``discard()``; what a
/// crash leaves is swept by ``Container/sweep(now:isWanted:)``.
public final class StagingArea: Sendable {
    /// The pack that is being staged.
    public let id: PackID
    /// The directory of the area.
    public let directory: Directory
    /// The directory that gets the pack's files.
    public let content: Directory
    /// Whether another process was here before, and may have left something.
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

    /// Removes the area and what was unpacked into it.
    public func discard() throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in _ = try staging.removeTree(name) }
    }

    /// Gives what is in the area the permission bits of a generation, and removes files that a killed run was
    /// about to put in place.
    func settleForReaders() throws(FileError) {
        for entry in try directory.entries() {
            if Directory.isTemporary(entry.name) {
                try directory.removeTree(entry.name)
            } else if entry.kind == .file {
                try directory.file(reading: FilePath(entry.name))?.setMode(.file)
            }
        }
        try content.setMode(.directory)
    }

    /// Lets readers in, once it is a staging area no longer.
    func open() throws(FileError) {
        try directory.setMode(.directory)
        lock.withLock { $0 = nil }
    }
}

extension Container {
    /// Makes a staging area for the pack whose lock is held, or takes over the one that a process left
    /// that died while it staged the same content.
    ///
    /// What is in it is to be believed as little as what a server sends.
    public func makeStagingArea(
        _ lock: PackLock,
        continuing digest: Digest
    ) throws(ContainerError) -> StagingArea {
        try ContainerError.wrapping { () throws(FileError) in
            let birth = try waitForBirths()
            guard let name = lock.id.nameOfArea(for: digest) else {
                throw FileError("create", path: staging.path, errno: .invalidArgument)
            }
            let area = try area(named: name, for: lock.id)
            _ = consume birth
            return area
        }
    }

    /// Makes an empty staging area for the pack whose lock is held.
    public func makeStagingArea(_ lock: PackLock) throws(ContainerError) -> StagingArea {
        try ContainerError.wrapping { () throws(FileError) in
            // A sweep must not meet the area between its birth and its lock.
            let birth = try waitForBirths()
            let area = try area(named: try makeUniqueName(lock.id.text), for: lock.id)
            _ = consume birth
            return area
        }
    }

    /// Waits until no process removes dead areas, which takes as long as their files are many.
    private func waitForBirths() throws(FileError) -> FileLock {
        try waitForLock(Self.birthLock, .shared, seconds: 300)
    }

    /// Makes or takes over the area of a name, which no living process has.
    private func area(
        named name: FilePath.Component,
        for id: PackID
    ) throws(FileError) -> StagingArea {
        if let status = try staging.status(FilePath(name)), status.kind != .directory {
            try staging.removeTree(name)
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

    /// Puts a locked lease file in the place of what an earlier run has left.
    ///
    /// A new one each time: the old one may be locked by a process that opened it while others could.
    /// The lock on the pack says that its owner is dead.
    private func makeLease(in directory: Directory) throws(FileError) -> FileLock {
        let name = ContainerLayout.lease
        for entry in try directory.entries() {
            let kind: FileStatus.Kind =
                entry.name == ContainerLayout.content ? .directory : .file
            // No run has made anything else there.
            if entry.kind != kind { try directory.removeTree(entry.name) }
        }
        let temporary = try directory.temporaryName(for: name)
        let file = try directory.file(updating: FilePath(temporary), exactly: .ownerReadWrite)
        // Something to read, and never read so far.
        try file.write([0x0A].span, at: 0)
        try file.setAccessTime(0)
        guard let lease = try FileLock.attempt(file, mode: .exclusive) else {
            throw FileError("lock", path: directory.path, errno: .resourceTemporarilyUnavailable)
        }
        try directory.rename(temporary, to: name, in: directory)
        return lease
    }

    func makeUniqueName(_ prefix: String) throws(FileError) -> FilePath.Component {
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        guard let name = FilePath.Component("\(prefix.prefix(64)).\(mark)") else {
            throw FileError("create", path: staging.path, errno: .invalidArgument)
        }
        return name
    }

    /// Held shared while a staging area is born, exclusively while dead ones are told apart.
    ///
    /// A pack's id never begins with a dot, so the name is no pack's.
    static let birthLock: FilePath.Component = ".staging"
}

extension ContainerReader {
    /// Whether there is a staging area for this content of the pack, which a process fills, or left when it died.
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
    /// The name of a staging area that the next run continues; `nil` if it is no name of a file.
    fileprivate func nameOfArea(for digest: Digest) -> FilePath.Component? {
        FilePath.Component("\(text.prefix(64)).\(digest)")
    }
}
