import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Codes of a daemon that is newer than its client.
@Suite(.directory) struct ReasonCodeTests {
    /// The codes that the description of the protocol lists.
    private struct Description: Decodable {
        struct Components: Decodable { let schemas: Schemas }

        struct Schemas: Decodable {
            let kinds: Codes
            let resources: Codes
            let failures: Codes

            private enum CodingKeys: String, CodingKey {
                case kinds = "PendingReasonKind"
                case resources = "PendingReasonResource"
                case failures = "FailureKind"
            }
        }

        struct Codes: Decodable {
            let values: [String]

            private enum CodingKeys: String, CodingKey { case values = "enum" }
        }

        let components: Components
    }

    @Test func aTaskThatWaitsForAnUnknownReasonIsRead() async throws {
        let directory = try TemporaryDirectory.required()
        let daemon = TestDaemon(path: directory.path.appending("socket").string)
        try daemon.start()
        defer { daemon.stop() }
        let client = ControlClient(path: daemon.path)
        _ = try await client.makeSession("s", configuration: SessionConfiguration())
        let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")
        _ = try await client.createTasks([request], in: "s")
        let reasons = [
            PendingReason(.other("sunspots")), PendingReason(.slot, resource: .other("antenna")),
        ]
        daemon.modify(1) { $0.pendingReasons = reasons }
        let tasks = try await client.tasks(in: "s")
        #expect(tasks.map(\.pendingReasons) == [reasons])
    }

    @Test func unknownCodesAreWrittenAsTheyWereRead() throws {
        let text = #"{"reason":"sunspots","resource":"antenna"}"#
        let reason = try ControlFormat.decode(PendingReason.self, from: Data(text.utf8))
        #expect(reason == PendingReason(.other("sunspots"), resource: .other("antenna")))
        let written = try ControlFormat.encode(reason)
        #expect(String(decoding: written, as: UTF8.self) == text)
        let failureText = #"{"kind":"eclipse","reason":"no sun"}"#
        let failure = try ControlFormat.decode(TransferFailure.self, from: Data(failureText.utf8))
        #expect(failure == TransferFailure(.other("eclipse"), reason: "no sun"))
        let writtenFailure = try ControlFormat.encode(failure)
        #expect(String(decoding: writtenFailure, as: UTF8.self) == failureText)
    }

    @Test func eachCodeOfTheProtocolIsKnown() throws {
        let root = FilePath(#filePath).removingLastComponent().removingLastComponent()
            .removingLastComponent()
        let page = root.appending("docs/reference/control.openapi.json").string
        let content = try Data(contentsOf: URL(filePath: page))
        let codes = try JSONDecoder().decode(Description.self, from: content).components.schemas
        #expect(codes.kinds.values == PendingReason.Kind.allCases.map(\.rawValue))
        #expect(codes.resources.values == PendingReason.Resource.allCases.map(\.rawValue))
        #expect(codes.failures.values == TransferFailure.Kind.allCases.map(\.rawValue))
        for kind in PendingReason.Kind.allCases {
            #expect(PendingReason.Kind(rawValue: kind.rawValue) == kind)
        }
    }
}
