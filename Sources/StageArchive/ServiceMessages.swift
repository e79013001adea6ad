import FoundationEssentials
import StageModel
import StageSystem
import SystemPackage

/// What is asked of an unpacking process; the archive and the destination travel as open files.
struct ServiceRequest: Codable {
    /// Where the destination was opened; for messages.
    var destination: String
    var format: ArchiveFormat
    var fileName: String?
    var limits: UnpackLimits
}

/// What an unpacking process answers: any number of times how far it is, and once how it ended.
enum ServiceAnswer: Codable {
    case progress(ByteCount)
    case report(UnpackReport)
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
}
