import StageModel
import Testing

/// The suggestions for misspelt names.
struct SimilarityTests {
    @Test(arguments: [
        ("prefech", "prefetch"), ("Prefetch ", "prefetch"), ("plna", "plan"), ("ad", "add"),
        ("oceanz", "oceans"), ("directroySource", "directorySource"),
    ])
    func aMisspeltNameIsFound(name: String, expected: String) {
        let names = [
            "plan", "prefetch", "add", "oceans", "directorySource", "directoryDestination",
        ]
        #expect(name.mostSimilar(in: names) == expected)
    }

    @Test(arguments: ["", "x", "status", "oceanography", "plan"])
    func anotherNameIsNotTakenForAMisspeltOne(name: String) {
        #expect(name.mostSimilar(in: ["plan", "prefetch", "oceans"]) == nil)
    }

    /// The nearest name is suggested; among equally near ones, the first.
    @Test func theNearestNameIsTaken() {
        #expect("aurora-2".mostSimilar(in: ["aurora-10", "aurora-3", "aurora-4"]) == "aurora-3")
    }
}
