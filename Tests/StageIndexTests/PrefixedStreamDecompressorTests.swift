import StageFrame
import StageTesting
import Testing

/// Streams that were compressed with a prefix.
struct PrefixedStreamDecompressorTests {
    private let prefix = noise(300_000)
    private let content = noise(250_000) + noise(50_000, seed: 3)

    private func compressed() -> [UInt8] {
        var compressor = FrameCompressor(level: 3, findsDistantRepeats: true)
        return compressor.compress(content.span, after: prefix.span)
    }

    /// Decompresses bytes that come in parts of `length`; returns the content and whether the frame was complete.
    private func decompress(
        _ bytes: [UInt8],
        after prefix: [UInt8],
        inPartsOf length: Int = 10_000,
        window: Int64 = 1 << 20
    ) -> (content: [UInt8], isComplete: Bool) {
        var (offset, content) = (0, [UInt8]())
        var decompressor = PrefixedStreamDecompressor(window: window)
        let isComplete = decompressor.decompress(after: prefix.span) { buffer in
            let count = min(length, buffer.count, bytes.count - offset)
            for position in 0..<count { buffer[position] = bytes[offset + position] }
            offset += count
            return count
        } to: { made in
            for offset in made.indices { content.append(made[offset]) }
            return true
        }
        return (content, isComplete)
    }

    @Test(arguments: [1, 977, 1 << 20])
    func contentIsRestored(length: Int) {
        let bytes = compressed()
        // The rest of the content is in the prefix.
        #expect(bytes.count < 60_000)
        let made = decompress(bytes, after: prefix, inPartsOf: length)
        #expect(made.isComplete && made.content == content)
    }

    @Test func anotherPrefixGivesOtherContent() {
        let made = decompress(compressed(), after: noise(300_000, seed: 9))
        #expect(made.content != content)
    }

    @Test(arguments: [0, 1, 5000])
    func aFrameThatEndsEarlyIsNotComplete(count: Int) {
        let made = decompress(Array(compressed().prefix(count)), after: prefix)
        #expect(!made.isComplete && made.content.count < content.count)
    }

    @Test func bytesAfterTheFrameAreRefused() {
        #expect(!decompress(compressed() + [0], after: prefix).isComplete)
        #expect(!decompress(compressed() + compressed(), after: prefix, inPartsOf: 1).isComplete)
    }

    @Test func bytesThatAreNoFrameAreRefused() {
        let made = decompress(noise(5000), after: prefix)
        #expect(!made.isComplete && made.content.isEmpty)
    }

    @Test func aLargerWindowIsRefused() {
        let made = decompress(compressed(), after: prefix, window: 1 << 15)
        #expect(!made.isComplete && made.content.isEmpty)
    }

    @Test func aSinkStops() {
        let bytes = compressed()
        var (isRead, count) = (false, 0)
        var decompressor = PrefixedStreamDecompressor(window: 1 << 20)
        let isComplete = decompressor.decompress(after: prefix.span) { buffer in
            let end = isRead ? 0 : min(buffer.count, bytes.count)
            for offset in 0..<end { buffer[offset] = bytes[offset] }
            isRead = true
            return end
        } to: { _ in
            count += 1
            return false
        }
        #expect(!isComplete && count == 1)
    }
}
