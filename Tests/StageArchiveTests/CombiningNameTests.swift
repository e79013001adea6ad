import StageArchive
import StageModel
import StageTesting
import Testing

/// Names of 400,000 combining characters, which Swift takes hours to compare: decoding ends at once, and not after
/// its minutes of processor time.
@Suite(.directory) struct CombiningNameTests {
    enum Field: String, CaseIterable {
        case path, key, target, longName, longTarget
    }

    private static let marks =
        String(repeating: "\u{301}", count: 200_000) + String(repeating: "\u{316}", count: 200_000)

    @Test(arguments: Field.allCases)
    func aLongNameIsRefused(in field: Field) async throws {
        var tar = TarBuilder()
        let text = ".\(Self.marks)"
        switch field {
        case .path: tar.addPax(("path", text))
        case .key: tar.addPax((text, "1"))
        case .target: tar.addPax(("linkpath", text))
        case .longName: tar.add(.init("l", .longName, content: Array("\(text)\u{0}".utf8)))
        case .longTarget: tar.add(.init("l", .longTarget, content: Array("\(text)\u{0}".utf8)))
        }
        let isTarget = field == .target || field == .longTarget
        tar.add(isTarget ? .init("a", .link, target: "b") : .init("a"))
        tar.finish()
        var bench = try Bench()
        let refusal = try await bench.refusal(tar.bytes, .tar)
        guard case .notAllowed(let entry, let fault) = refusal else {
            Issue.record("not refused as such: \(refusal.map { "\($0)".prefix(200) } ?? "nothing")")
            return
        }
        #expect(entry.utf8.count < 2100)
        #expect(fault.description.utf8.count < 4096)
    }
}
