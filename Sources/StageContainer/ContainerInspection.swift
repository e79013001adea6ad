import Glibc
import StageModel
import StageSystem
import SystemPackage

/// Compares the directories, records and lock files of a container with what StagePack makes.
///
/// The one list of permission bits: what is below the container's directory has these, whatever the umask of
/// the process that made it; the container's directory alone decides who reaches them.
private struct ContainerInspection {
    private let root: Directory
    private let owner: UInt32
    private(set) var faults: [ContainerFault] = []

    init(_ root: Directory) throws(FileError) {
        self.root = root
        let status = try root.status()
        owner = status.owner
        // Root's container is for all users; a user's is for whom the user likes, but not to write into.
        let (needed, forbidden): (UInt32, UInt32) = owner == 0 ? (0o755, 0o022) : (0o700, 0o002)
        let expected = status.mode & ~forbidden | needed
        if status.mode != expected {
            add(".", .hasMode(status.mode, expected: expected))
        }
    }

    private mutating func add(_ name: FilePath, _ problem: ContainerFault.Problem) {
        faults.append(ContainerFault(name, problem))
    }

    /// Checks one file or directory, and returns whether it is of its kind.
    @discardableResult
    mutating func check(
        _ name: FilePath,
        _ kind: FileStatus.Kind,
        _ mode: FilePermissions,
        isRequired: Bool = true
    ) throws(FileError) -> Bool {
        guard let status = try root.status(name) else {
            if isRequired { add(name, .isMissing) }
            return false
        }
        guard status.kind == kind else {
            add(name, .isNo(kind))
            return false
        }
        if status.mode != UInt32(mode.rawValue) {
            add(name, .hasMode(status.mode, expected: UInt32(mode.rawValue)))
        }
        if status.owner != owner { add(name, .belongsTo(user: status.owner, expected: owner)) }
        return true
    }

    /// The names in a directory; none where it cannot be read, which its own check tells.
    func names(in directory: FilePath, suffix: String = "") throws(FileError) -> [FilePath] {
        do throws(FileError) {
            let entries = try root.directory(directory)?.entries() ?? []
            return entries.map(\.name)
                .filter { $0.string.hasSuffix(suffix) && !Directory.isTemporary($0) }
                .map { directory.appending($0) }.sorted { $0.string < $1.string }
        } catch {
            let unreadable: [Errno] = [
                .permissionDenied, .notDirectory, .tooManySymbolicLinkLevels,
            ]
            guard unreadable.contains(error.errno) else { throw error }
            return []
        }
    }

    /// Checks the directories that every container has, those that some have, and the record.
    mutating func checkFrame() throws(FileError) {
        for name in ContainerLayout.directories {
            try check(FilePath(name), .directory, .directory)
        }
        for name in [ContainerLayout.pins, ContainerLayout.files, ContainerLayout.trust] {
            try check(FilePath(name), .directory, .directory, isRequired: false)
        }
        try check(FilePath(ContainerLayout.record), .file, .file)
    }

    /// Checks the lock files, which are their owner's alone.
    mutating func checkLocks() throws(FileError) {
        let locks = try names(in: FilePath(ContainerLayout.locks))
        for name in try locks + names(in: FilePath(ContainerLayout.downloads), suffix: ".lock") {
            try check(name, .file, .ownerReadWrite)
        }
    }

    /// Checks what lies beside the content of a generation, and the generation's directory.
    mutating func check(generation name: FilePath, isCurrent: Bool) throws(FileError) {
        // A publication that was killed has not let readers in yet: a rollback does, and 'gc' removes it.
        let isOpen = try root.status(name)?.mode != 0o700
        let mode: FilePermissions = isOpen || isCurrent ? .directory : .ownerReadWriteExecute
        guard try check(name, .directory, mode) else { return }
        for file in [ContainerLayout.packRecord, ContainerLayout.lease, ContainerLayout.listing] {
            try check(name.appending(file), .file, .file)
        }
        try check(name.appending(ContainerLayout.index), .file, .file, isRequired: false)
    }

    /// Checks generations, of which some are current, and single files.
    mutating func checkContent(current: Set<FilePath>) throws(FileError) {
        for pack in try names(in: FilePath(ContainerLayout.generations))
        where try check(pack, .directory, .directory) {
            for generation in try names(in: pack) {
                try check(generation: generation, isCurrent: current.contains(generation))
                let content = generation.appending(ContainerLayout.content)
                try check(content, .directory, .directory)
            }
        }
        for version in try names(in: FilePath(ContainerLayout.files))
        where try check(version, .directory, .directory) {
            // Without one nothing is in use: a crash came between, and who uses the directory makes it.
            try check(version.appending(ContainerLayout.lease), .file, .file, isRequired: false)
        }
    }

    /// Checks the signed metadata of applications; that it is valid is checked where roots are known.
    mutating func checkTrust() throws(FileError) {
        for directory in try names(in: FilePath(ContainerLayout.trust))
        where try check(directory, .directory, .directory) {
            for file in try names(in: directory, suffix: ".json") { try check(file, .file, .file) }
            let roots = directory.appending(ContainerLayout.roots)
            if try check(roots, .directory, .directory, isRequired: false) {
                for file in try names(in: roots) { try check(file, .file, .file) }
            }
        }
    }

    /// Checks the records of one type in a directory.
    mutating func checkRecords<Value: JSONReadable>(
        of type: Value.Type,
        in directory: FilePath.Component
    ) throws(ContainerError) {
        let names = try ContainerError.wrapping { () throws(FileError) in
            try self.names(in: FilePath(directory), suffix: ".json")
        }
        for name in names {
            let isFile = try ContainerError.wrapping { () throws(FileError) in
                try check(name, .file, .file)
            }
            if isFile { try checkRecord(of: type, at: name) }
        }
    }

    /// Checks that a record can be read, where this user may read it.
    mutating func checkRecord<Value: JSONReadable>(
        of type: Value.Type,
        at name: FilePath
    ) throws(ContainerError) {
        do throws(ContainerError) {
            _ = try JSONRecord.read(parsing: type, at: name, in: root)
        } catch {
            switch error {
            case .damagedRecord: add(name, .isDamaged)
            case .file(let error) where error.errno == .permissionDenied: break
            default: throw error
            }
        }
    }
}

extension ContainerReader {
    /// Compares the container's directories, records and lock files with what StagePack makes: their kinds,
    /// permission bits, owners, and whether records can be read.
    ///
    /// The content of packs is compared by `verify`. Nothing is changed.
    public func faults() throws(ContainerError) -> [ContainerFault] {
        var current: Set<FilePath> = []
        for id in try packsWithGenerations() {
            guard let generation = try currentGeneration(of: id) else { continue }
            current.insert(path(of: generation, id))
        }
        var inspection = try ContainerError.wrapping { () throws(FileError) in
            var inspection = try ContainerInspection(root)
            try inspection.checkFrame()
            try inspection.checkLocks()
            try inspection.checkContent(current: current)
            try inspection.checkTrust()
            return inspection
        }
        try inspection.checkRecords(of: StoredManifest.self, in: ContainerLayout.manifest)
        try inspection.checkRecords(of: StagingHistory.self, in: ContainerLayout.history)
        try inspection.checkRecords(of: Pin.self, in: ContainerLayout.pins)
        return inspection.faults
    }

    /// Compares what lies beside the content of a leased generation with what StagePack makes.
    public func faults(beside lease: Lease) throws(ContainerError) -> [ContainerFault] {
        let name = path(of: lease.generation, lease.id)
        var inspection = try ContainerError.wrapping { () throws(FileError) in
            var inspection = try ContainerInspection(root)
            try inspection.check(generation: name, isCurrent: true)
            return inspection
        }
        try inspection.checkRecord(
            of: StagedPack.self,
            at: name.appending(ContainerLayout.packRecord)
        )
        return inspection.faults.filter { $0.name.starts(with: name) }
    }
}
