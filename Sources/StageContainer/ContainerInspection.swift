import Glibc
import StageModel
import StageSystem
import SystemPackage

/// Compares the directories, records and lock files of a container with what StagePack creates.
///
/// The only list of permission bits: entries below the container's directory have these, regardless of the
/// umask of the process that created them. The mode of the container's directory alone controls access to
/// them.
private struct ContainerInspection {
    private let root: Directory
    private let owner: UInt32
    private(set) var faults: [ContainerFault] = []

    init(_ root: Directory) throws(FileError) {
        self.root = root
        let status = try root.status()
        owner = status.owner
        // A container of root is readable by all users. The container of a user may be readable by others, but
        // not writable by all.
        let (needed, forbidden): (UInt32, UInt32) = owner == 0 ? (0o755, 0o022) : (0o700, 0o002)
        let expected = status.mode & ~forbidden | needed
        if status.mode != expected {
            add(.hasMode(status.mode, expected: expected), at: ".")
        }
    }

    private mutating func add(_ problem: ContainerFault.Problem, at name: FilePath) {
        faults.append(ContainerFault(name: name, problem: problem))
    }

    /// Checks one file or directory, and returns whether it exists with the expected kind.
    @discardableResult
    mutating func check(
        _ name: FilePath,
        is kind: FileStatus.Kind,
        mode: FilePermissions,
        isRequired: Bool = true
    ) throws(FileError) -> Bool {
        guard let status = try root.status(name) else {
            if isRequired { add(.isMissing, at: name) }
            return false
        }
        guard status.kind == kind else {
            add(.isNo(kind), at: name)
            return false
        }
        if status.mode != UInt32(mode.rawValue) {
            add(.hasMode(status.mode, expected: UInt32(mode.rawValue)), at: name)
        }
        if status.owner != owner { add(.belongsTo(user: status.owner, expected: owner), at: name) }
        return true
    }

    /// Returns the names in a directory; none if it cannot be read, which its own check reports.
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

    /// Checks the required and the optional directories, and the container's record.
    mutating func checkFrame() throws(FileError) {
        for name in ContainerLayout.directories {
            try check(FilePath(name), is: .directory, mode: .directory)
        }
        for name in [ContainerLayout.pins, ContainerLayout.files, ContainerLayout.trust] {
            try check(FilePath(name), is: .directory, mode: .directory, isRequired: false)
        }
        try check(FilePath(ContainerLayout.record), is: .file, mode: .file)
    }

    /// Checks the lock files, which only their owner may access.
    mutating func checkLocks() throws(FileError) {
        let locks = try names(in: FilePath(ContainerLayout.locks))
        for name in try locks + names(in: FilePath(ContainerLayout.downloads), suffix: ".lock") {
            try check(name, is: .file, mode: .ownerReadWrite)
        }
    }

    /// Checks the directory of a generation, and the files beside its content.
    mutating func check(generation name: FilePath, isCurrent: Bool) throws(FileError) {
        // A killed publication leaves a generation that readers cannot access; a rollback corrects its mode,
        // and `gc` removes it.
        let isOpen = try root.status(name)?.mode != 0o700
        let mode: FilePermissions = isOpen || isCurrent ? .directory : .ownerReadWriteExecute
        guard try check(name, is: .directory, mode: mode) else { return }
        for file in [ContainerLayout.packRecord, ContainerLayout.lease, ContainerLayout.listing] {
            try check(name.appending(file), is: .file, mode: .file)
        }
        try check(name.appending(ContainerLayout.index), is: .file, mode: .file, isRequired: false)
    }

    /// Checks that the packs have links; a copy of the container that followed links has directories instead.
    mutating func checkLinks() throws(FileError) {
        for name in try names(in: FilePath(ContainerLayout.packs)) {
            guard let id = name.lastComponent, (try? PackID(id.string)) != nil,
                let status = try root.status(name), status.kind != .link
            else { continue }
            add(.isNo(.link), at: name)
        }
    }

    /// Checks generations and single files.
    mutating func checkContent(current: Set<FilePath>) throws(FileError) {
        for pack in try names(in: FilePath(ContainerLayout.generations))
        where try check(pack, is: .directory, mode: .directory) {
            for generation in try names(in: pack) {
                try check(generation: generation, isCurrent: current.contains(generation))
                let content = generation.appending(ContainerLayout.content)
                try check(content, is: .directory, mode: .directory)
            }
        }
        for version in try names(in: FilePath(ContainerLayout.files))
        where try check(version, is: .directory, mode: .directory) {
            // A directory without a lease is not in use: a crash came before its creation, and the next user
            // creates it.
            try check(
                version.appending(ContainerLayout.lease),
                is: .file,
                mode: .file,
                isRequired: false
            )
        }
    }

    /// Checks the files of signed metadata; their validity is checked where the registered roots are known.
    mutating func checkTrust() throws(FileError) {
        for directory in try names(in: FilePath(ContainerLayout.trust))
        where try check(directory, is: .directory, mode: .directory) {
            for file in try names(in: directory, suffix: ".json") {
                try check(file, is: .file, mode: .file)
            }
            let roots = directory.appending(ContainerLayout.roots)
            if try check(roots, is: .directory, mode: .directory, isRequired: false) {
                for file in try names(in: roots) { try check(file, is: .file, mode: .file) }
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
        var budget = RecordBudget()
        // A file with several names (hard links) is decoded once.
        var problems: [UInt64: ContainerFault.Problem?] = [:]
        for name in names {
            let status = try ContainerError.wrapping { () throws(FileError) in
                try check(name, is: .file, mode: .file) ? root.status(name) : nil
            }
            guard let status else { continue }
            if let known = problems[status.inode] {
                if let known { add(known, at: name) }
            } else if budget.take(status.size) {
                let count = faults.count
                try checkRecord(of: type, at: name)
                problems[status.inode] = .some(faults.count > count ? faults.last?.problem : nil)
            } else {
                add(.exceedsLimit(ByteCount(ManifestLimits.storedByteCount)), at: name)
            }
        }
    }

    /// Checks that the records of the current generations can be decoded.
    mutating func checkPackRecords(of current: Set<FilePath>) throws(ContainerError) {
        for generation in current.sorted(by: { $0.string < $1.string }) {
            let name = generation.appending(ContainerLayout.packRecord)
            let status = try ContainerError.wrapping { () throws(FileError) in
                try root.status(name)
            }
            // A file of another kind is reported separately.
            if status?.kind == .file { try checkRecord(of: StagedPack.self, at: name) }
        }
    }

    /// Checks that a record can be decoded, unless this user has no permission to read it.
    mutating func checkRecord<Value: JSONReadable>(
        of type: Value.Type,
        at name: FilePath
    ) throws(ContainerError) {
        do throws(ContainerError) {
            _ = try JSONRecord.read(parsing: type, at: name, in: root)
        } catch {
            switch error {
            case .damagedRecord: add(.isDamaged, at: name)
            case .file(let error) where error.errno == .permissionDenied: break
            default: throw error
            }
        }
    }
}

extension ContainerReader {
    /// Compares the container's directories, records and lock files with what StagePack creates: kind,
    /// permission bits, owner, and whether records can be decoded.
    ///
    /// Changes nothing, and does not check the content of packs (see `verify`).
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
            try inspection.checkLinks()
            try inspection.checkContent(current: current)
            try inspection.checkTrust()
            return inspection
        }
        try inspection.checkPackRecords(of: current)
        try inspection.checkRecords(of: StoredManifest.self, in: ContainerLayout.manifest)
        try inspection.checkRecords(of: StagingHistory.self, in: ContainerLayout.history)
        try inspection.checkRecords(of: Pin.self, in: ContainerLayout.pins)
        return inspection.faults
    }

    /// Compares the files beside the content of a leased generation with what StagePack creates.
    public func faults(beside lease: Lease) throws(ContainerError) -> [ContainerFault] {
        try faults(of: lease.generation, lease.id, isCurrent: true)
    }

    /// Compares the directory of a generation, and the files beside its content, with what StagePack creates.
    func faults(
        of generation: GenerationName,
        _ id: PackID,
        isCurrent: Bool
    ) throws(ContainerError) -> [ContainerFault] {
        let name = path(of: generation, id)
        var inspection = try ContainerError.wrapping { () throws(FileError) in
            var inspection = try ContainerInspection(root)
            try inspection.check(generation: name, isCurrent: isCurrent)
            return inspection
        }
        try inspection.checkRecord(
            of: StagedPack.self,
            at: name.appending(ContainerLayout.packRecord)
        )
        return inspection.faults.filter { $0.name.starts(with: name) }
    }
}
