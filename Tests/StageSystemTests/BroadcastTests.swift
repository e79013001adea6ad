import StageSystem
import Testing

/// Elements that one sender passes to several listeners.
struct BroadcastTests {
    @Test(.timeLimit(.minutes(5)))
    func nothingFollowsTheLastElement() async {
        let broadcast = Broadcast<String>(
            buffering: 4,
            haveSameSubject: { _, _ in false },
            kind: { _ in .step }
        )
        let elements = broadcast.elements(
            where: { element in
                // As another thread may, sends the last element before this one is added.
                if element == "late" { broadcast.send("last") }
                return true
            },
            endingWith: { $0 == "last" }
        )
        for element in ["first", "late"] { broadcast.send(element) }
        var found: [String] = []
        for await element in elements { found.append(element) }
        #expect(found == ["first", "last"])
    }
}
