import StageEngine
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Packs that share one bundle, from a server without range requests.
@Suite(.directory, .server)
struct SharedBundleTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    /// The steps of the packs so far.
    private struct Steps {
        var reading: Set<PackID> = []
        var verified: Set<PackID> = []
    }

    /// A pack reads its bundle to the end, even if another pack removes it meanwhile.
    @Test func aBundleThatAnotherPackRemovesIsReadToTheEnd() async throws {
        let tree = ["noise": noise(9_000_000)]
        try await world.publish(tree, deltas: false)
        let (first, second) = (try PackID("first"), try PackID("second"))
        try world.serve(as: [first, second]) { $0.ignoringRanges() }
        let steps = ConditionVariable(Steps())
        let outcomes = try await world.stage([first, second]) { id, event in
            if event == .verified { steps.change { _ = $0.verified.insert(id) } }
            guard case .unpacked = event else { return }
            steps.change { _ = $0.reading.insert(id) }
            // The first one removes the file when the second one has begun to read it.
            let isDue = steps.wait(atMost: .seconds(60)) { steps in
                let isDue =
                    id == first ? steps.reading.count == 2 : steps.verified.contains(first)
                return isDue ? true : nil
            }
            if isDue == nil { Issue.record("\(id) has waited in vain") }
        }
        for id in [first, second] {
            guard case .staged = outcomes[id] else {
                Issue.record("\(id): \(String(describing: outcomes[id]))")
                continue
            }
            let staged = world.root.path.appending("container/packs/\(id)/noise")
            #expect(try bytes(of: staged) == tree["noise"])
        }
        let downloads = world.root.path.appending("container/downloads")
        #expect(try Directory.open(downloads).entries() == [])
    }
}
