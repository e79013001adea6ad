import FoundationEssentials
import StageModel
import StageSystem
import SystemPackage

/// The decoder process that the service has made for a request, or why there is none.
enum ServiceStart: Codable {
    /// The number of the process, a child of the one that asked.
    case process(CInt)
    case failure(FileError)
}

/// A request to a decoder process; the archive and the destination travel as open files.
struct ServiceRequest: Codable {
    /// The task of a decoder.
    enum Task: Codable {
        /// Unpacks into the destination, which was opened at this path; for messages.
        case unpack(destination: String, fileName: String?, UnpackLimits)
        /// Reads the archive to its end, and counts what it holds.
        case count
    }

    var task: Task
    var format: ArchiveFormat
}

/// An answer of a decoder process: any number of times how far it is, and once how it ended.
enum ServiceAnswer: Codable {
    case progress(ByteCount)
    case report(UnpackReport)
    case inventory(ArchiveInventory)
    case failure(ArchiveError)
}

extension MessageSocket {
    /// Sends a value as JSON, with open files.
    func send(
        value: some Encodable,
        files: [FileDescriptor] = []
    ) throws(FileError) {
        guard let data = try? JSONEncoder().encode(value) else {
            // Every value that is sent is made of strings and whole numbers.
            preconditionFailure("a message cannot be encoded")
        }
        try send(Array(data), files: files)
    }
}

extension MessageSocket.Message {
    /// The value that the message carries as JSON, or `nil` if it is none.
    func value<Value: Decodable>(as type: Value.Type) -> Value? {
        // Both sides are the same program; what is not a message is treated as a broken connection.
        try? JSONDecoder().decode(type, from: Data(bytes))
    }

    /// Closes the open files of a message that has no right to bring any.
    func closeFiles() {
        // What cannot be closed was not open.
        for file in files { try? file.close() }
    }
}
