import StageModel
import StageTesting
import Testing

@testable import StageIndex

/// Content that a patch's frame encodes as differences from its prefix.
struct SimilarRunTests {
    private let prefix = noise(500, seed: 3)
    private let content = noise(300, seed: 4)
    private let runs = [
        SimilarRun(content: 0..<7, prefixOffset: 450),
        SimilarRun(content: 7..<90, prefixOffset: 0),
        SimilarRun(content: 100..<299, prefixOffset: 301),
    ]

    /// Returns the bytes to which the frame of a part decompresses.
    private func frame(_ runs: [SimilarRun]) -> [UInt8] {
        var bytes = content
        for run in runs {
            for (step, position) in run.content.enumerated() {
                bytes[position] &-= prefix[run.prefixOffset + step]
            }
        }
        return runs.encoded() + bytes
    }

    private func part(runsLength: Int) -> PatchTable.Part {
        PatchTable.Part(
            contentLength: content.count,
            runsLength: runsLength,
            prefix: [0..<Int64(prefix.count)],
            frameLength: 1
        )
    }

    private func restored(
        _ frame: [UInt8],
        runsLength: Int,
        inStepsOf step: Int = 1 << 20
    ) throws(IndexError) -> [UInt8] {
        var decoder = SimilarRunDecoder(part(runsLength: runsLength))
        var bytes: [UInt8] = []
        for start in stride(from: 0, to: frame.count, by: step) {
            bytes += try decoder.restore(Span(), after: prefix.span)
            let piece = Array(frame[start..<min(start + step, frame.count)])
            bytes += try decoder.restore(piece.span, after: prefix.span)
        }
        return bytes
    }

    @Test(arguments: [1, 2, 3, 8, 93, 1 << 20])
    func framesWithRunsRestoreTheirContent(step: Int) throws {
        let length = runs.encoded().count
        #expect(try restored(frame(runs), runsLength: length, inStepsOf: step) == content)
        let whole = [SimilarRun(content: 0..<300, prefixOffset: 200)]
        let wholeLength = whole.encoded().count
        #expect(try restored(frame(whole), runsLength: wholeLength, inStepsOf: step) == content)
    }

    /// Runs outside of the content or of the prefix.
    @Test func impossibleRunsAreRefused() throws {
        let bad: [[SimilarRun]] = [
            [SimilarRun(content: 299..<301, prefixOffset: 0)],
            [SimilarRun(content: 300..<301, prefixOffset: 0)],
            [SimilarRun(content: 0..<300, prefixOffset: 201)],
            [SimilarRun(content: 5..<6, prefixOffset: 500)],
            [SimilarRun(content: 5..<6, prefixOffset: -1)],
            [SimilarRun(content: 5..<6, prefixOffset: .max / 4)],
            [SimilarRun(content: 5..<5, prefixOffset: 1)],
            runs + [SimilarRun(content: 300..<301, prefixOffset: 0)],
        ]
        for runs in bad {
            let encoded = runs.encoded()
            #expect(throws: IndexError.self, "\(runs)") {
                try restored(encoded + content, runsLength: encoded.count)
            }
        }
        let huge: [UInt8] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]
        // The second run adds the largest number to a place in the prefix.
        let far = [5, 1, 8, 0, 1, 0xFE] + huge.dropFirst()
        for encoded in [
            huge + [1, 0], [0] + huge + [0], [0, 1] + huge, [0, 1], [0], [0x80], far,
        ] {
            #expect(throws: IndexError.self, "\(encoded)") {
                try restored(encoded + content, runsLength: encoded.count)
            }
        }
    }

    /// The time does not depend on how many ranges the prefix has.
    @Test(.timeLimit(.minutes(1))) func manyRunsAfterAPrefixOfManyRangesAreRead() throws {
        let (count, rangeCount) = (20_000, 200_000)
        let part = PatchTable.Part(
            contentLength: 16 * 3 * count,
            runsLength: 3 * count,
            prefix: (0..<Int64(rangeCount)).map { 2 * $0..<2 * $0 + 1 },
            frameLength: 1
        )
        var decoder = SimilarRunDecoder(part)
        let prefix = [UInt8](repeating: 1, count: rangeCount)
        let runs = (0..<count).map { SimilarRun(content: $0..<$0 + 1, prefixOffset: $0) }
        let differences = [UInt8](repeating: 4, count: count + 1)
        let content = try decoder.restore((runs.encoded() + differences).span, after: prefix.span)
        #expect(content == [UInt8](repeating: 5, count: count) + [4])
    }

    /// A change of any byte of the encoded runs is an error, or gives other content.
    @Test func everyByteOfRunsMatters() throws {
        let length = runs.encoded().count
        let frame = frame(runs)
        for position in 0..<length {
            for bend: UInt8 in [0x01, 0x02, 0x3F, 0x40, 0x80, 0xFF] {
                var bent = frame
                bent[position] ^= bend
                do throws(IndexError) {
                    #expect(try restored(bent, runsLength: length) != content)
                } catch {
                    #expect(!error.reason.isEmpty)
                }
            }
        }
    }
}
