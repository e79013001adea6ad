import Hummingbird
import StageModel
import StageSystem

/// Error that closes the connection, since the announced content cannot be sent.
struct BrokenBody: Error {}

/// Part of a file that is sent as a response body, read from one open descriptor in chunks.
struct FileBody: Sendable {
    let shared: SharedFile
    /// State of the file that the header fields describe.
    let identity: FileIdentity
    let range: Range<Int64>
    let bytesPerSecond: ByteCount?
    /// Number of bytes after which the connection is closed.
    let dropAfter: ByteCount?

    /// Writes the bytes, and counts them in `sent`; each write waits for the client to receive most of the earlier
    /// ones.
    ///
    /// - Throws: ``BrokenBody`` if the file has changed or the body is to be dropped. The connection then closes
    ///   before the announced length, so that a client never receives a mixture of two states of a file, or padding.
    @concurrent
    func write(to writer: inout any ResponseBodyWriter, sent: inout Int) async throws {
        let end = dropAfter.map { min(range.upperBound, range.lowerBound + $0.rawValue) }
        var pace = Pace(bytesPerSecond: bytesPerSecond)
        var chunk = [UInt8](repeating: 0, count: pace.chunkSize)
        var offset = range.lowerBound
        while offset < end ?? range.upperBound {
            let wanted = Int(min(Int64(pace.chunkSize), (end ?? range.upperBound) - offset))
            if chunk.count != wanted { chunk = [UInt8](repeating: 0, count: wanted) }
            let count = try shared.file.read(into: &chunk, at: offset)
            guard count > 0, try shared.file.identity().hasSameContent(as: identity) else {
                throw BrokenBody()
            }
            try await writer.write(ByteBuffer(bytes: chunk[..<count]))
            sent += count
            offset += Int64(count)
            try await pace.wait(afterSending: count)
        }
        if offset < range.upperBound { throw BrokenBody() }
    }
}

/// Limits a body to a number of bytes per second.
struct Pace {
    private let bytesPerSecond: Int64?
    private let start: ContinuousClock.Instant
    private var sent: Int64 = 0

    init(bytesPerSecond: ByteCount?) {
        self.bytesPerSecond = bytesPerSecond.map { max(1, $0.rawValue) }
        start = .now
    }

    /// Size of a write: 128 KiB, or less so that a slow body flows evenly.
    var chunkSize: Int {
        Int(min(128 << 10, max(1, (bytesPerSecond ?? .max) / 20)))
    }

    /// Waits until the rate permits further bytes.
    mutating func wait(afterSending count: Int) async throws {
        guard let bytesPerSecond else { return }
        sent += Int64(count)
        let due =
            Duration.seconds(sent / bytesPerSecond)
            + .seconds(Double(sent % bytesPerSecond) / Double(bytesPerSecond))
        try await ContinuousClock().sleep(until: start + due)
    }
}
