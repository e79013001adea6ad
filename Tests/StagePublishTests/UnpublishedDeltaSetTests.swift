import StageDigest
import StageIndex
import StageModel
import StageSystem
import Testing

@testable import StagePublish

struct UnpublishedDeltaSetTests {
    /// The limit of the publisher is that of clients.
    @Test func windowsBeyondTheLimitOfClientsAreLeftOut() throws {
        let length = IndexLimits.windowLength
        let window = DeltaSet.Window(segments: [
            DeltaSet.Segment(entry: 0, offset: 0, length: length)
        ])
        let groups = (0..<60).map { DeltaPlan.Group(window: window, frames: [$0]) }
        let made = (0..<60).map { position in
            [
                UnpublishedDeltaSet.DeltaFrame(
                    position: position,
                    contentLength: 100,
                    bytes: [1],
                    digest: Digest(of: [1])
                )
            ]
        }
        var unpublished = UnpublishedDeltaSet()
        try unpublished.add(groups, results: [.success(made)])
        // 54 windows have less than 256 MiB, and 55 have more.
        #expect(unpublished.positions == Set(0..<54))
        let set = unpublished.set(from: Digest(of: [1]), to: Digest(of: [2]))
        let frame = ContentIndex.Frame(
            digest: Digest(of: []),
            length: 100,
            compressed: nil,
            bundle: 0,
            offset: 0
        )
        let index = ContentIndex(frames: [ContentIndex.Frame](repeating: frame, count: 60))
        #expect(throws: Never.self) { try set.check(to: index) { _ in Int64(length) } }
    }
}
