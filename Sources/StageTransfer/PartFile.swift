public import StageModel
public import StageSystem
import Synchronization
public import SystemPackage

/// A file that a download fills, over as many attempts, processes and boots as it takes, and what is
/// known of it.
///
/// The bytes are in `<name>.part.<generation>`, and a record of them in `<name>.state`. A generation
/// holds bytes of one version of the content only, in order from the first. Its file is named in the
/// record before it holds anything, except for the first one of content that no other process continues,
/// and the one before is removed first: what a crash leaves is found by the name alone, and removed with
/// it. Bytes are on disk before the record counts them. Within one run of the kernel everything that was written
/// counts, after another only what the record calls durable.
///
/// One process works on a part file at a time: the caller holds a lock for that. Both files are their
/// owner's alone (`0600`): content that is not verified is no concern of other users, and a record may
/// have a URL with a secret in it.
public final class PartFile: Sendable {
    /// The file of one generation.
    final class Content: Sendable {
        let file: File
        init(_ file: consuming File) { self.file = file }
    }

    private struct State {
        var record: PartRecord?
        var content: Content?
        var length: Int64 = 0
        var isRecorded = false
        /// Whether the generation is whole, so that no checkpoint of it is recorded any more.
        var isComplete = false
        var lastGeneration = 0
    }

    private let directory: Directory
    private let name: FilePath.Component
    private let boot: BootID
    private let state: Mutex<State>
    /// Held while the record changes on disk.
    private let recording = Mutex(())

    private init(_ directory: Directory, _ name: FilePath.Component, _ boot: BootID, _ state: State)
    {
        self.directory = directory
        self.name = name
        self.boot = boot
        self.state = Mutex(state)
    }

    /// Opens the part file called `name` in a directory, with what an earlier run left of it.
    ///
    /// Nothing is created before a download brings its first bytes. What cannot be understood counts
    /// as not there. `boot` is the run of the kernel that decides which bytes count.
    public static func open(
        _ name: FilePath.Component,
        in directory: Directory,
        boot: BootID = .current
    ) throws(TransferError) -> PartFile {
        do throws(FileError) {
            return PartFile(directory, name, boot, try recover(name, directory, boot))
        } catch {
            throw TransferError(error)
        }
    }

    private static func recover(
        _ name: FilePath.Component,
        _ directory: Directory,
        _ boot: BootID
    ) throws(FileError) -> State {
        var state = State(isRecorded: true)
        let bytes: [UInt8]
        do throws(FileError) {
            guard let found = try directory.bytes(of: path(name, "state"), limit: 1 << 16) else {
                return State()
            }
            bytes = found
        } catch {
            // A record that is too long, or no file, is as good as none.
            guard error.isWrongKindOrSize else { throw error }
            return state
        }
        guard let record = PartRecord.decode(bytes) else { return state }
        state.lastGeneration = record.generation
        let partName = path(name, "part.\(record.generation)")
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

    private static func path(_ name: FilePath.Component, _ suffix: String) -> FilePath {
        FilePath("\(name.string).\(suffix)")
    }

    /// The name, in its directory, of the file with the bytes.
    public var fileName: FilePath.Component {
        let generation = state.withLock { $0.record?.generation ?? $0.lastGeneration + 1 }
        return component("part.\(generation)")
    }

    /// Where the file with the bytes is.
    public var path: FilePath { directory.path.appending(fileName) }

    /// How many bytes of the content the file holds.
    public var length: ByteCount { ByteCount(state.withLock { $0.length }) }

    /// The size of the whole content, where it is known.
    public var total: ByteCount? { state.withLock { $0.record?.total.map { ByteCount($0) } } }

    /// Whether a later download of content that is known by nothing else may go on with the bytes.
    public var isContinuable: Bool {
        state.withLock { $0.record.map { $0.total != nil && $0.validator != nil } ?? false }
    }

    /// Removes the bytes and what is known of them.
    public func remove() throws(TransferError) {
        do throws(FileError) {
            try recording.withLock { _ throws(FileError) in
                let part = fileName
                let isRecorded = state.withLock { state in
                    let old = state
                    state = State(lastGeneration: old.record?.generation ?? old.lastGeneration)
                    return old.isRecorded
                }
                // In this order a crash leaves nothing whose name is not known: a record without its file is harmless.
                try directory.remove(part)
                if isRecorded { try directory.remove(component("state")) }
            }
        } catch {
            throw TransferError(error)
        }
    }

    private func component(_ suffix: String) -> FilePath.Component {
        // The suffix makes a name that is regular, whatever comes before it.
        Self.path(name, suffix).lastComponent ?? name
    }
}

extension PartFile {
    /// What is known of the bytes, and how many there are; `nil` if there are none to go on from.
    var held: (record: PartRecord, length: Int64)? {
        state.withLock { state in state.record.map { ($0, state.length) } }
    }

    /// The file of the current generation.
    var content: Content? { state.withLock { $0.content } }

    /// The current generation; 0 before the first.
    var generation: Int { state.withLock { $0.record?.generation ?? 0 } }

    /// How many bytes are known to be on disk.
    var durable: Int64 { state.withLock { $0.record?.durable ?? 0 } }

    /// Removes the generation there is, and starts a new, empty one.
    ///
    /// One that is recorded can be continued by another process, if its total is known.
    func begin(
        total: Int64?,
        validator: Validator?,
        url: String,
        isRecorded: Bool
    ) throws(FileError) -> Content {
        let old = state.withLock { $0 }
        let last = old.record?.generation ?? old.lastGeneration
        // Without a record only the file of the first generation is found again.
        let isRecorded = isRecorded || old.isRecorded || last > 0
        let record = PartRecord(
            generation: last + 1,
            total: total,
            durable: 0,
            validator: validator,
            url: url,
            boot: boot.text
        )
        return try recording.withLock { _ throws(FileError) -> Content in
            // First, so that a crash leaves no file beside the one that the record names.
            state.withLock { $0 = State(isRecorded: isRecorded, lastGeneration: last) }
            if old.record != nil { try directory.remove(component("part.\(last)")) }
            if isRecorded { try write(record, durably: false) }
            let content = Content(try emptyFile("part.\(record.generation)"))
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

    /// Creates a file, or empties one that a crash left behind.
    private func emptyFile(_ suffix: String) throws(FileError) -> File {
        let path = Self.path(name, suffix)
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

    /// Puts a file in the place of the current generation's.
    func move(_ name: FilePath.Component, from folder: Directory) throws(FileError) {
        try folder.rename(name, to: fileName, in: directory)
    }

    /// Opens the file of the current generation again, which somebody else has written.
    func reopen(length: Int64) throws(FileError) {
        let content = Content(
            try directory.file(updating: FilePath(fileName), permissions: .privateFile)
        )
        state.withLock { state in
            state.content = content
            state.length = length
        }
    }

    /// Takes note of bytes that were written.
    func grow(to length: Int64) { state.withLock { $0.length = length } }

    /// Makes everything written so far durable, says so in the record, and then to `report`.
    ///
    /// Blocks the thread. A generation that is not recorded, or never can be continued, is passed over.
    /// What `report` hears is about the current generation: another one begins only after it returns.
    func checkpoint(_ report: (ByteCount) -> Void = { _ in }) throws(FileError) {
        let now = state.withLock { $0 }
        guard let record = now.record, let content = now.content, now.isRecorded else { return }
        let length = now.length
        guard record.total != nil, length > record.durable else { return }
        try content.file.synchronize()
        try recording.withLock { _ throws(FileError) in
            // The file may have been completed or given up meanwhile.
            let now = state.withLock { $0 }
            guard !now.isComplete, var current = now.record,
                current.generation == record.generation
            else { return }
            current.durable = length
            current.boot = boot.text
            try write(current, durably: true)
            state.withLock { $0.record?.durable = length }
            report(ByteCount(length))
        }
    }

    /// Ends the recording of a generation that is whole: no ``checkpoint(_:)`` that began before writes to the
    /// record after this.
    ///
    /// The daemon removes the record of placed content by a part file of its own; a record that is written
    /// after that would stay. Blocks the thread while a record is being written.
    func complete() {
        recording.withLock { _ in state.withLock { $0.isComplete = true } }
    }

    /// Takes note of a version of the content that the bytes are known to belong to, and of where the
    /// next ones come from.
    func rebind(to validator: Validator?, url: String) throws(FileError) {
        let changed = state.withLock { state -> PartRecord? in
            guard var record = state.record, record.url != url || record.boot != boot.text else {
                return nil
            }
            record.url = url
            record.validator = validator
            record.boot = boot.text
            state.record = record
            return state.isRecorded ? record : nil
        }
        guard let changed else { return }
        try recording.withLock { _ throws(FileError) in try write(changed, durably: false) }
    }

    private func write(_ record: PartRecord, durably: Bool) throws(FileError) {
        try directory.write(
            record.encoded(),
            to: component("state"),
            durably: durably,
            exactly: .privateFile
        )
    }
}
