import StageDigest
import StageIndex
import StageModel
import StageTesting
import Testing

@testable import StagePublish

/// The parts into which the content of a patch is cut.
@Suite(.directory)
struct PatchPlanTests {
    @Test func partsLeaveRoomForRuns() async throws {
        let store = try IndexedStore()
        let pack = try await store.package(["large": noise(6 << 20)], "tree")
        let content = PatchContent(of: pack.index, notIn: ContentIndex())
        let source = PatchContent(of: ContentIndex(), firstNotIn: pack.index)
        for limit in [1 << 20, 2 << 20, 3 << 20, 128 << 20] {
            let plan = PatchPlan(of: content, after: source, limit: Int64(limit), by: nil)
            #expect(plan.parts.map(\.range.count).reduce(0, +) == content.size)
            for length in plan.parts.map(\.range.count) {
                let most = PatchTable.Part.maximumRunBytes(forContentOf: length, limit: limit)
                #expect(length + most <= limit)
                // A part may have one piece of the largest size.
                if limit > IndexLimits.frameLength { #expect(most == length / 16) }
            }
        }
    }

    /// Clients accept the number of parts, and all that these may refer to, whatever lengths the pieces have.
    @Test(
        arguments: [1, 400_000, 524_289, 600_000, 1 << 20],
        [1 << 20, 2 << 20, 5 << 20, 128 << 20]
    )
    func plansStayWithinTheLimitsOfClients(length: Int, limit: Int) throws {
        var index = ContentIndex()
        for number in 0..<1000 {
            index.frames.append(
                ContentIndex.Frame(
                    digest: Digest(of: Array("\(number)".utf8)),
                    length: length,
                    compressed: nil,
                    bundle: 0,
                    offset: 0
                )
            )
        }
        let file = ContentIndex.File(
            isExecutable: false,
            size: Int64(1000 * length),
            digest: Digest(of: []),
            content: .frames(Array(0..<1000))
        )
        let entry = ContentIndex.Entry(path: try ContentPath("file"), kind: .file(file))
        index.entries = ContentIndex.EntryList([entry])
        let content = PatchContent(of: index, notIn: ContentIndex())
        let source = PatchContent(of: ContentIndex(), firstNotIn: index)
        let parts = PatchPlan(of: content, after: source, limit: Int64(limit), by: nil).parts
        #expect(parts.count <= PatchTable.maximumPartCount(forContentOf: content.size))
        let most = PatchTable.maximumPrefixBytes(forContentOf: content.size)
        #expect(Int64(parts.count * limit) <= most)
    }
}
