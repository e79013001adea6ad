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
                let most = PatchTable.Part.mostRunBytes(forContentOf: length, limit: limit)
                #expect(length + most <= limit)
                // A part may have one piece of the largest size.
                if limit > IndexLimits.frameLength { #expect(most == length / 16) }
            }
        }
    }
}
