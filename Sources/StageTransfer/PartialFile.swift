public import StageModel
public import StageSystem
import Synchronization
public import SystemPackage

/// A file that a download fills, across attempts, processes and boots, with a record of its state.
///
/// The bytes are in `<name>.part.<generation>`, the record in `<name>.state`. A generation has bytes of one version
/// of the content only, contiguous from the first. The record names a generation before any byte is written to it,
/// except for the first generation of content that no other process resumes. Before a new generation begins, the file of the
/// previous one is removed. So the name alone suffices to find and remove everything that a crash leaves. Bytes are synced to disk
/// before the record counts them. Within one boot of the kernel all written bytes count; after a reboot only those
/// that the record calls durable. Bytes without a record count only for content that a digest identifies. After a sync
/// that failed, bytes that are not durable are discarded: the kernel may have dropped them, and the next sync would succeed.
///
/// One process uses a partial file at a time: the caller holds a lock for that. Both files have mode `0600`: other users
/// must not read unverified content, and a record may have a URL with a secret in it.
public final class PartialFile: Sendable {
    private struct State {
        var record: PartialFileRecord?
        var content: Content?
        var length: Int64 = 0
        var isRecorded = false
        /// `true` once the generation is complete, so that no more checkpoints of it are recorded.
        var isComplete = false
        var lastGeneration = 0
    }

    private let directory: Directory
    private let name: FilePath.Component
    private let boot: BootID
    private let state: Mutex<State>
    /// Locked while the record on disk changes.
    private let recording = Mutex(())

    private init(
        _ name: FilePath.Component,
        in directory: Directory,
        boot: BootID,
        state: State
    ) {
        self.directory = directory
        self.name = name
        self.boot = boot
        self.state = Mutex(state)
    }

    /// Opens the partial file called `name` in a directory, with the bytes and the record of an earlier run.
    ///
    /// Creates no file before a download receives its first bytes. An unreadable record is ignored. `boot` is the
    /// current boot of the kernel, which decides how many bytes count.
    ///
    /// Pass `digestedSize`, the size of the content, if the caller compares the content with a known digest: the bytes
    /// of content of up to 256 KiB, which has no record, then count, too.
    public static func open(
        _ name: FilePath.Component,
        in directory: Directory,
        boot: BootID = .current,
        digestedSize: ByteCount? = nil
    ) throws(TransferError) -> PartialFile {
        do throws(FileError) {
            let total = digestedSize?.rawValue
            let state = try recover(name, in: directory, boot: boot, digestedSize: total)
            return PartialFile(name, in: directory, boot: boot, state: state)
        } catch {
            throw TransferError(error)
        }
    }

    private static func recover(
        _ name: FilePath.Component,
        in directory: Directory,
        boot: BootID,
        digestedSize: Int64?
    ) throws(FileError) -> State {
        var state = State(isRecorded: true)
        let bytes: [UInt8]
        do throws(FileError) {
            let limit = PartialFileRecord.sizeLimit
            guard let found = try directory.bytes(of: path(name, suffix: "state"), limit: limit)
            else {
                // Larger content always has a record. If it was lost, the bytes that are on disk are unknown.
                guard let digestedSize, digestedSize <= largestUnrecorded else { return State() }
                return try recoverUnrecorded(name, in: directory, boot: boot, total: digestedSize)
            }
            bytes = found
        } catch {
            // A record that is too long, or not a regular file, is ignored.
            guard error.isWrongKindOrSize else { throw error }
            return state
        }
        guard let record = PartialFileRecord.decode(bytes) else { return state }
        state.lastGeneration = record.generation
        let partName = path(name, suffix: "part.\(record.generation)")
        guard try directory.status(partName)?.kind == .file else { return state }
        let part = try directory.file(updating: partName, permissions: .privateFile)
        let length = try part.status().size
        guard let usable = record.usableLength(of: length, in: boot) else {
            if let component = partName.lastComponent { try directory.remove(component) }
            return state
        }
        if usable < length { try part.truncate(to: usable) }
        state.record = record
        state.length = usable
        state.content = Content(part)
        return state
    }

    /// The largest content that a download by default does not record, in bytes.
    private static let largestUnrecorded = Int64(256 << 10)

    /// Returns the state of content that a digest identifies and that has no record: wrong bytes, as a power cut may
    /// leave them, fail verification.
    private static func recoverUnrecorded(
        _ name: FilePath.Component,
        in directory: Directory,
        boot: BootID,
        total: Int64
    ) throws(FileError) -> State {
        let partName = path(name, suffix: "part.1")
        guard try directory.status(partName)?.kind == .file else { return State() }
        let part = try directory.file(updating: partName, permissions: .privateFile)
        let length = try part.status().size
        guard length > 0, length <= total else { return State() }
        let record = PartialFileRecord(
            generation: 1,
            total: total,
            durable: 0,
            validator: nil,
            url: "",
            boot: boot.text
        )
        return State(
            record: record,
            content: Content(part),
            length: length,
            lastGeneration: 1
        )
    }

    private static func path(_ name: FilePath.Component, suffix: String) -> FilePath {
        FilePath("\(name.string).\(suffix)")
    }

    /// Name of the file with the bytes, in its directory.
    public var fileName: FilePath.Component {
        let generation = state.withLock { $0.record?.generation ?? $0.lastGeneration + 1 }
        return component("part.\(generation)")
    }

    /// Path of the file with the bytes.
    public var path: FilePath { directory.path.appending(fileName) }

    /// Number of bytes of the content that the file has.
    public var length: ByteCount { ByteCount(state.withLock { $0.length }) }

    /// Size of the whole content, if known.
    public var total: ByteCount? { state.withLock { $0.record?.total.map { ByteCount($0) } } }

    /// `true` if a later download can resume the file without knowing the content's digest.
    public var isContinuable: Bool {
        state.withLock { $0.record.map { $0.total != nil && $0.validator != nil } ?? false }
    }

    /// Removes the file and its record.
    public func remove() throws(TransferError) {
        do throws(FileError) {
            try recording.withLock { _ throws(FileError) in
                let part = fileName
                let isRecorded = state.withLock { state in
                    let old = state
                    state = State(lastGeneration: old.record?.generation ?? old.lastGeneration)
                    return old.isRecorded
                }
                // This order leaves no file of unknown name after a crash: a record without its file is harmless.
                try directory.remove(part)
                if isRecorded { try directory.remove(component("state")) }
            }
        } catch {
            throw TransferError(error)
        }
    }

    private func component(_ suffix: String) -> FilePath.Component {
        // The suffix makes it a regular path component for any `name`.
        Self.path(name, suffix: suffix).lastComponent ?? name
    }
}

extension PartialFile {
    /// The record and the number of bytes; `nil` if there is nothing to resume.
    var resumePoint: (record: PartialFileRecord, length: Int64)? {
        state.withLock { state in state.record.map { ($0, state.length) } }
    }

    /// Open file of the current generation.
    var content: Content? { state.withLock { $0.content } }

    /// Number of the current generation; 0 before the first.
    var generation: Int { state.withLock { $0.record?.generation ?? 0 } }

    /// Number of bytes that are known to be on disk.
    var durable: Int64 { state.withLock { $0.record?.durable ?? 0 } }

    /// Removes the current generation, and starts a new, empty one.
    ///
    /// Another process can resume a recorded generation if its total size is known.
    func begin(
        total: Int64?,
        validator: Validator?,
        url: String,
        resource: String? = nil,
        isRecorded: Bool
    ) throws(FileError) -> Content {
        let old = state.withLock { $0 }
        let last = old.record?.generation ?? old.lastGeneration
        // A server that redirects each request elsewhere would make every attempt start again: from the second
        // resource on, the validator alone decides.
        let hasMoved = old.record.map { $0.resource != resource } ?? false
        // Without a record, a later process finds only the file of the first generation.
        let isRecorded = isRecorded || old.isRecorded || last > 0
        let record = PartialFileRecord(
            generation: last + 1,
            total: total,
            durable: 0,
            validator: validator,
            url: url,
            resource: hasMoved ? nil : resource,
            boot: boot.text
        )
        return try recording.withLock { _ throws(FileError) -> Content in
            // First, so that a crash leaves no file beside the one that the record names.
            state.withLock { $0 = State(isRecorded: isRecorded, lastGeneration: last) }
            if old.record != nil { try directory.remove(component("part.\(last)")) }
            let suffix = "part.\(record.generation)"
            if isRecorded {
                // Bytes that an earlier process left there would count if this one ended after writing the record.
                if try directory.status(Self.path(name, suffix: suffix))?.kind == .file {
                    try directory.remove(component(suffix))
                }
                try write(record, durably: false)
            }
            let content = Content(try emptyFile(suffix))
            state.withLock {
                $0 = State(
                    record: record,
                    content: content,
                    length: 0,
                    isRecorded: isRecorded,
                    lastGeneration: record.generation
                )
            }
            return content
        }
    }

    /// Creates a file, or truncates one that a crash left behind.
    private func emptyFile(_ suffix: String) throws(FileError) -> File {
        let path = Self.path(name, suffix: suffix)
        do throws(FileError) {
            return try directory.file(creating: path, permissions: .privateFile)
        } catch {
            guard error.errno == .fileExists else { throw error }
            let status = try directory.status(path)
            if status?.kind == .other || status?.kind == .link {
                try directory.remove(component(suffix))
            }
            let file = try directory.file(updating: path, permissions: .privateFile)
            try file.truncate(to: 0)
            return file
        }
    }

    /// Sets the number of bytes after a write or a truncation.
    func grow(to length: Int64) { state.withLock { $0.length = length } }

    /// Syncs all bytes written so far, then updates the record, then calls `report`.
    ///
    /// Blocks the thread. Does nothing for a generation that is not recorded or cannot be resumed. `report` always
    /// concerns the current generation: the next one begins only after it returns.
    func checkpoint(_ report: (ByteCount) -> Void = { _ in }) throws(FileError) {
        let now = state.withLock { $0 }
        guard let record = now.record, let content = now.content, now.isRecorded else { return }
        let length = now.length
        guard record.total != nil, length > record.durable else { return }
        try content.synchronize()
        try recording.withLock { _ throws(FileError) in
            // Meanwhile the file may have been completed, shortened or abandoned.
            let now = state.withLock { $0 }
            guard !now.isComplete, length <= now.length, var current = now.record,
                current.generation == record.generation
            else { return }
            current.durable = length
            current.boot = boot.text
            try write(current, durably: true)
            state.withLock { $0.record?.durable = length }
            report(ByteCount(length))
        }
    }

    /// Syncs the content to disk by the open file that has written it, so that success proves that all of it is there.
    ///
    /// If this sync fails, or an earlier one has failed, the bytes that are not known to be on disk are discarded. Blocks
    /// the thread. Must not be called during a download.
    ///
    /// - Parameter isWritten: Whether a sync of the file system has written the content since the download.
    /// - Throws: ``FileError`` if bytes may be lost.
    package func synchronize(isWritten: Bool = false) throws(FileError) {
        do throws(FileError) {
            try content?.synchronize(isWritten: isWritten)
        } catch {
            _ = discardLostBytes()
            throw error
        }
    }

    /// Error of a sync of the current generation; `nil` if none has failed.
    var fault: FileError? { content?.fault }

    /// Shortens the file to the bytes that are known to be on disk if a sync has failed; returns the error of that sync.
    ///
    /// Must not be called while bytes are written.
    func discardLostBytes() -> FileError? {
        guard let content, let fault = content.fault else { return nil }
        do throws(FileError) {
            let durable = durable
            try content.discardBytes(beyond: durable)
            grow(to: durable)
        } catch {
            // Within this boot, all of its length would count. The first error is the one to report.
            try? remove()
        }
        return fault
    }

    /// Stops the recording of a complete generation: a ``checkpoint(_:)`` that began earlier no longer writes the
    /// record.
    ///
    /// The daemon removes the record of committed content through its own instance; a record written after that would
    /// never be removed. Blocks the thread while a record is being written.
    func complete() {
        recording.withLock { _ in state.withLock { $0.isComplete = true } }
    }

    /// Records the version of the content that the bytes belong to, and the mirror and resource of the next ones.
    ///
    /// The bytes that the record calls durable stay so. Blocks the thread.
    func rebind(
        to validator: Validator?,
        url: String,
        resource: String
    ) throws(FileError) {
        func differs(_ record: PartialFileRecord) -> Bool {
            record.url != url || record.boot != boot.text
                || record.resource.map { $0 != resource } ?? false
        }
        // Most responses change nothing, and need not wait for a checkpoint.
        guard state.withLock({ $0.record.map(differs) ?? false }) else { return }
        try recording.withLock { _ throws(FileError) in
            // Within the lock: a checkpoint that ends meanwhile has its bytes in the record.
            let now = state.withLock { $0 }
            guard var record = now.record, differs(record) else { return }
            record.url = url
            if record.resource != nil { record.resource = resource }
            record.validator = validator
            record.boot = boot.text
            // Durably if the record counts bytes on disk: a power cut could otherwise leave an empty record instead of it.
            if now.isRecorded { try write(record, durably: record.durable > 0) }
            state.withLock { $0.record = record }
        }
    }

    private func write(_ record: PartialFileRecord, durably: Bool) throws(FileError) {
        try directory.write(
            record.encoded(),
            to: component("state"),
            durably: durably,
            exactly: .privateFile
        )
    }
}
