import FoundationEssentials
import StageModel
import StageSystem
import SystemPackage

/// The decoder process that the service has made for a request, or why there is none.
enum ServiceStart {
    /// The number of the process, a child of the one that asked.
    case process(CInt)
    case failure(FileError)
}

/// A request to a decoder process; the archive and the destination travel as open files.
struct ServiceRequest {
    /// The task of a decoder.
    enum Task {
        /// Unpacks into the destination, which was opened at this path; for messages.
        case unpack(destination: String, fileName: String?, UnpackLimits)
        /// Reads the archive to its end, and counts what it holds.
        case count
    }

    var task: Task
    var format: ArchiveFormat
}

/// An answer of a decoder process: any number of times how far it is, and once how it ended.
enum ServiceAnswer {
    case progress(ByteCount)
    case report(UnpackReport)
    case inventory(ArchiveInventory)
    case failure(ArchiveError)
}

/// A message between the command, the service and its decoders.
///
/// A byte says which case it is, and its fields follow. Only errors are JSON: Foundation's coders take ten million instructions
/// at their first use, and each decoder would be a process that uses them first.
protocol ServiceMessage {
    /// Writes the fields of the message.
    func write(to message: inout MessageFields)
    /// Reads a message, or returns `nil` if it is none.
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
                let bytes = message.takeNumber(), let window = message.takeNumber()
            else { return nil }
            let limits = UnpackLimits(
                entries: entries,
                bytes: ByteCount(bytes),
                window: ByteCount(window)
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
            guard let count = message.takeNumber(), let size = message.takeSize() else {
                return nil
            }
            self = .inventory(ArchiveInventory(fileCount: count, installedSize: size))
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

/// The fields of a message, which are read in the order in which they were written: numbers of eight bytes, and texts after their
/// lengths.
struct MessageFields {
    /// The bytes of the message.
    private(set) var bytes: [UInt8]
    private var offset = 0

    /// Creates the fields of a message that was received, or of one to be sent.
    init(_ bytes: [UInt8] = []) { self.bytes = bytes }

    /// Whether all fields were read.
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

    /// Adds a value as JSON.
    mutating func add(_ value: some Encodable) {
        let encoder = JSONEncoder()
        // The same bytes for the same value.
        encoder.outputFormatting = .sortedKeys
        guard let data = try? encoder.encode(value) else {
            // Every value that is sent is made of strings and whole numbers.
            preconditionFailure("a message cannot be encoded")
        }
        add(data.count)
        bytes += data
    }

    mutating func takeNumber() -> Int? {
        guard bytes.count - offset >= 8 else { return nil }
        defer { offset += 8 }
        return bytes[offset..<offset + 8].reversed().reduce(0) { $0 << 8 | Int($1) }
    }

    /// Takes the size of content: a decoder that was taken over may send any number.
    mutating func takeSize() -> ByteCount? {
        guard let number = takeNumber(), 0...ManifestLimits.installedSize.rawValue ~= Int64(number)
        else { return nil }
        return ByteCount(number)
    }

    mutating func takeText() -> String? {
        takeBytes().flatMap { String(validating: $0, as: UTF8.self) }
    }

    /// Takes a value that was added as JSON.
    mutating func takeValue<Value: Decodable>(_ type: Value.Type) -> Value? {
        // Any other value is treated as a broken connection.
        takeBytes().flatMap { try? JSONDecoder().decode(type, from: Data($0)) }
    }

    private mutating func takeBytes() -> ArraySlice<UInt8>? {
        let start = offset
        guard let count = takeNumber(), 0...(bytes.count - offset) ~= count else {
            // A field that is cut off is not passed over: the message does not end with the one before it.
            offset = start
            return nil
        }
        defer { offset += count }
        return bytes[offset..<offset + count]
    }
}

extension MessageSocket {
    /// Sends a message with open files.
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
    /// The value that the message carries, or `nil` if it is none.
    func value<Value: ServiceMessage>(as type: Value.Type) -> Value? {
        // Both sides are the same program; what is not a message is treated as a broken connection.
        var message = MessageFields(bytes)
        guard let value = Value(reading: &message), message.isAtEnd else { return nil }
        return value
    }

    /// Closes the open files of a message that has no right to bring any.
    func closeFiles() {
        // What cannot be closed was not open.
        for file in files { try? file.close() }
    }
}
