import Hummingbird
import StageModel
import StageSystem

/// The connection cannot go on: what was promised will not be sent.
struct BrokenBody: Error {}

/// Part of a file on its way to a client, read from one open descriptor, a chunk at a time.
struct FileBody: Sendable {
    let shared: SharedFile
    /// The state of the file that the header fields describe.
    let identity: FileIdentity
    let range: Range<Int64>
    let bytesPerSecond: ByteCount?
    /// After how many bytes the connection is closed.
    let dropAfter: ByteCount?

    /// Sends the bytes and counts them in `sent`; each write waits until the client has taken most of those before.
    ///
    /// - Throws: ``BrokenBody`` if the file changed meanwhile or the body is to be dropped, so that
    ///   the connection is closed before the length that was promised: the bytes of two states of a
    ///   file are never mixed, nor is a file that got shorter filled up.
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

/// Keeps a body to a number of bytes a second.
struct Pace {
    private let bytesPerSecond: Int64?
    private let start: ContinuousClock.Instant
    private var sent: Int64 = 0

    init(bytesPerSecond: ByteCount?) {
        self.bytesPerSecond = bytesPerSecond.map { max(1, $0.rawValue) }
        start = .now
    }

    /// How much is sent at once: 128 KiB, or less so that a slow body flows evenly.
    var chunkSize: Int {
        Int(min(128 << 10, max(1, (bytesPerSecond ?? .max) / 20)))
    }

    /// Waits until the rate allows for the bytes sent so far.
    mutating func wait(afterSending count: Int) async throws {
        guard let bytesPerSecond else { return }
        sent += Int64(count)
        let due =
            Duration.seconds(sent / bytesPerSecond)
            + .seconds(Double(sent % bytesPerSecond) / Double(bytesPerSecond))
        try await ContinuousClock().sleep(until: start + due)
    }
}
