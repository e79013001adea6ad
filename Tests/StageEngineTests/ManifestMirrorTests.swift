import Logging
import StageContainer
import StageEngine
import StageModel
import StageTesting
import Testing

/// A manifest that different URLs provide over time.
@Suite(.server) struct ManifestMirrorTests {
    private let server = TestServer.current

    /// Both mirrors send the same entity tag, but relative URLs lead to the mirror that sent the manifest.
    @Test func aManifestOfAnotherMirrorReplacesTheStoredOne() async throws {
        let manifest = Manifest(
            application: try ApplicationID("net.example.game"),
            revision: 1,
            packs: []
        )
        let answer = Answer.content(manifest.json())
        let urls = ["/first/manifest.json", "/second/manifest.json"].map { server.url($0) }
        server.answer("/first/manifest.json", with: answer, .status(404))
        server.answer("/second/manifest.json", with: answer)
        let source = ManifestSource(urls: urls)
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let options = StagerOptions(now: { 1_700_000_000 })
        try await withStager(options, logger: logger) { stager in
            let first = try await stager.manifest(from: source)
            #expect(first.record.resolvedURL == urls[0])
            let second = try await stager.manifest(from: source, stored: first.record)
            #expect(second.record.resolvedURL == urls[1])
            #expect(!second.isUnchanged)
            let third = try await stager.manifest(from: source, stored: second.record)
            #expect(third.record == second.record)
            #expect(third.isUnchanged)
        }
        let isConditional = server.requests.map { $0["if-none-match"] != nil }
        // Each later run asks both mirrors, since the first one no longer has the manifest.
        #expect(isConditional == [false, true, false, false, true])
    }
}
