import FoundationEssentials
import StageModel
import StageSystem
import SystemPackage

/// The service's answer to a start request: a decoder process, or the reason why there is none.
enum ServiceStart {
    /// The process id of a child of the requesting process.
    case process(CInt)
    case failure(FileError)
}

/// A request to a decoder process; the archive and the destination are sent as file descriptors.
struct ServiceRequest {
    /// The task of a decoder.
    enum Task {
        /// Unpacks into the destination, whose path is for messages.
        case unpack(destination: String, fileName: String?, UnpackLimits)
        /// Reads the archive to its end, and computes its totals.
        case count
    }

    var task: Task
    var format: ArchiveFormat
}

/// An answer of a decoder process: any number of progress reports, then one result.
enum ServiceAnswer {
    case progress(ByteCount)
    case report(UnpackReport)
    case inventory(ArchiveInventory)
    case failure(ArchiveError)
}

/// A message between the command, the service and its decoders.
///
/// A byte identifies the case; its fields follow. Only errors are JSON: the first use of Foundation's coders
/// takes ten million instructions, and each decoder would be a new process.
protocol ServiceMessage {
    /// Writes the fields of the message.
    func write(to message: inout MessageFields)
    /// Reads a message, or returns `nil` if it is invalid.
    init?(reading message: inout MessageFields)
}

extension ServiceStart: ServiceMessage {
    func write(to message: inout MessageFields) {
        switch self {
        case .process(let identifier):
            message.add(0)
            message.add(Int(identifier))
        case .failure(let error):
            message.add(1)
            message.add(error)
        }
    }

    init?(reading message: inout MessageFields) {
        switch message.takeNumber() {
        case 0?:
            guard let identifier = message.takeNumber().flatMap({ CInt(exactly: $0) }) else {
                return nil
            }
            self = .process(identifier)
        case 1?:
            guard let error = message.takeValue(FileError.self) else { return nil }
            self = .failure(error)
        default: return nil
        }
    }
}

extension ServiceRequest: ServiceMessage {
    func write(to message: inout MessageFields) {
        message.add(format.rawValue)
        guard case .unpack(let destination, let fileName, let limits) = task else {
            return message.add(1)
        }
        message.add(0)
        message.add(destination)
        message.add(limits.entries)
        message.add(Int(limits.bytes.rawValue))
        message.add(Int(limits.window.rawValue))
        message.add(limits.statedDirectories ?? -1)
        if let fileName { message.add(fileName) }
    }

    init?(reading message: inout MessageFields) {
        guard let format = message.takeText().flatMap(ArchiveFormat.init(rawValue:)) else {
            return nil
        }
        self.format = format
        switch message.takeNumber() {
        case 0?:
            guard let destination = message.takeText(), let entries = message.takeNumber(),
                let bytes = message.takeNumber(), let window = message.takeNumber(),
                let directories = message.takeNumber()
            else { return nil }
            let limits = UnpackLimits(
                entries: entries,
                bytes: ByteCount(bytes),
                window: ByteCount(window),
                statedDirectories: directories < 0 ? nil : directories
            )
            task = .unpack(destination: destination, fileName: message.takeText(), limits)
        case 1?: task = .count
        default: return nil
        }
    }
}

extension ServiceAnswer: ServiceMessage {
    func write(to message: inout MessageFields) {
        switch self {
        case .progress(let bytes):
            message.add(0)
            message.add(Int(bytes.rawValue))
        case .report(let report):
            message.add(1)
            for number in [report.files, report.directories, report.links] { message.add(number) }
            message.add(Int(report.bytes.rawValue))
            let confinement = report.confinement
            message.add(confinement.version)
            for isConfined in [
                confinement.restrictsFiles, confinement.restrictsNetwork,
                confinement.restrictsScope, confinement.filtersCalls,
            ] { message.add(isConfined ? 1 : 0) }
        case .inventory(let inventory):
            message.add(2)
            message.add(inventory.fileCount)
            message.add(inventory.directoryCount)
            message.add(Int(inventory.installedSize.rawValue))
        case .failure(let error):
            message.add(3)
            message.add(error)
        }
    }

    init?(reading message: inout MessageFields) {
        switch message.takeNumber() {
        case 0?:
            guard let bytes = message.takeSize() else { return nil }
            self = .progress(bytes)
        case 1?:
            guard let report = UnpackReport(reading: &message) else { return nil }
            self = .report(report)
        case 2?:
            guard let files = message.takeNumber(), let directories = message.takeNumber(),
                let size = message.takeSize()
            else { return nil }
            self = .inventory(
                ArchiveInventory(
                    fileCount: files,
                    directoryCount: directories,
                    installedSize: size
                )
            )
        case 3?:
            guard let error = message.takeValue(ArchiveError.self) else { return nil }
            self = .failure(error)
        default: return nil
        }
    }
}

extension UnpackReport {
    fileprivate init?(reading message: inout MessageFields) {
        guard let files = message.takeNumber(), let directories = message.takeNumber(),
            let links = message.takeNumber(), let bytes = message.takeSize(),
            let version = message.takeNumber(), let restrictsFiles = message.takeNumber(),
            let restrictsNetwork = message.takeNumber(),
            let restrictsScope = message.takeNumber(), let filtersCalls = message.takeNumber()
        else { return nil }
        self.init(
            files: files,
            directories: directories,
            links: links,
            bytes: bytes,
            confinement: Confinement(
                version: version,
                restrictsFiles: restrictsFiles == 1,
                restrictsNetwork: restrictsNetwork == 1,
                restrictsScope: restrictsScope == 1,
                filtersCalls: filtersCalls == 1
            )
        )
    }
}

/// The fields of a message, read in the order in which they were written: 8-byte numbers, and texts preceded
/// by their lengths.
struct MessageFields {
    /// The bytes of the message.
    private(set) var bytes: [UInt8]
    private var offset = 0

    /// Creates the fields of a received message, or of an empty one to send.
    init(_ bytes: [UInt8] = []) { self.bytes = bytes }

    /// Indicates whether all fields were read.
    var isAtEnd: Bool { offset == bytes.count }

    mutating func add(_ number: Int) {
        for shift in stride(from: 0, to: 64, by: 8) {
            bytes.append(UInt8(truncatingIfNeeded: number >> shift))
        }
    }

    mutating func add(_ text: String) {
        add(text.utf8.count)
        bytes += text.utf8
    }

    /// Adds a value as JSON, with sequences of combining characters cut that ``takeValue(_:)`` would refuse: libarchive's
    /// messages quote names.
    mutating func add(_ value: some Encodable) {
        let encoder = JSONEncoder()
        // Equal values have equal bytes.
        encoder.outputFormatting = .sortedKeys
        guard let data = try? encoder.encode(value) else {
            // All values that are sent consist of strings and integers.
            preconditionFailure("a message cannot be encoded")
        }
        let json = CombiningSequence.shortened(inJSON: Array(data))
        add(json.count)
        bytes += json
    }

    mutating func takeNumber() -> Int? {
        guard bytes.count - offset >= 8 else { return nil }
        defer { offset += 8 }
        return bytes[offset..<offset + 8].reversed().reduce(0) { $0 << 8 | Int($1) }
    }

    /// Reads the size of content, which must be in range: a compromised decoder may send any number.
    mutating func takeSize() -> ByteCount? {
        guard let number = takeNumber(), 0...ManifestLimits.installedSize.rawValue ~= Int64(number)
        else { return nil }
        return ByteCount(number)
    }

    /// Reads a text; returns `nil` if it has too many combining characters in a row, which a compromised decoder may send.
    mutating func takeText() -> String? {
        guard let text = takeBytes().flatMap({ String(validating: $0, as: UTF8.self) }),
            !CombiningSequence.exceedsLimit(in: text, limit: CombiningSequence.quotationLimit)
        else { return nil }
        return text
    }

    /// Reads a value that was added as JSON; returns `nil` also if a text in it has too many combining characters in a row.
    mutating func takeValue<Value: Decodable>(_ type: Value.Type) -> Value? {
        let limit = CombiningSequence.quotationLimit
        guard let bytes = takeBytes().map({ Array($0) }),
            CombiningSequence.excess(inJSON: bytes.span, limit: limit) == nil
        else { return nil }
        // An invalid value is treated as a broken connection.
        return try? JSONDecoder().decode(type, from: Data(bytes))
    }

    private mutating func takeBytes() -> ArraySlice<UInt8>? {
        let start = offset
        guard let count = takeNumber(), 0...(bytes.count - offset) ~= count else {
            // A truncated field is not skipped: the message must not seem to end before it.
            offset = start
            return nil
        }
        defer { offset += count }
        return bytes[offset..<offset + count]
    }
}

extension MessageSocket {
    /// Sends a message with file descriptors.
    func send(
        value: some ServiceMessage,
        files: [FileDescriptor] = []
    ) throws(FileError) {
        var message = MessageFields()
        value.write(to: &message)
        try send(message.bytes, files: files)
    }
}

extension MessageSocket.Message {
    /// Returns the decoded message, or `nil` if it is invalid.
    func value<Value: ServiceMessage>(as type: Value.Type) -> Value? {
        // Both sides run the same program; an invalid message is treated as a broken connection.
        var message = MessageFields(bytes)
        guard let value = Value(reading: &message), message.isAtEnd else { return nil }
        return value
    }

    /// Closes the file descriptors of a message that should carry none.
    func closeFiles() {
        // Closing fails only for a descriptor that is not open.
        for file in files { try? file.close() }
    }
}
