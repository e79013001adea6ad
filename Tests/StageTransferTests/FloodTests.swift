import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

/// Servers that send endless lines, which libcurl keeps in memory as long as an exchange lasts.
@Suite(.server) struct FloodTests {
    private let server = TestServer.current
    private let folder: TemporaryDirectory
    private let part: PartialFile

    init() throws {
        folder = try TemporaryDirectory()
        part = try PartialFile.open("pack", in: folder.directory)
    }

    private static func configuration(for flood: Answer.Flood) -> TransferConfiguration {
        var configuration = TransferConfiguration.single
        // Only this flood ends by the time limit; the client must refuse the others, even if it reads them late.
        if flood == .chunkExtension {
            configuration.stall = StallRule(minimum: .kibibytes(1), window: .seconds(2))
        }
        return configuration
    }

    /// The number exceeds a socket's buffers, and is far below what a flood sends in a second.
    private static let mostSent = 16 << 20

    @Test(arguments: Answer.Flood.allCases)
    func aDownloadEndsWhereLinesHaveNoEnd(flood: Answer.Flood) async throws {
        server.answer("/pack", with: .flood(flood))
        var request = DownloadRequest(server.url("/pack"), content: [])
        request.size = nil
        let error = await failure(of: request, to: part, Self.configuration(for: flood))
        try expectRefusal(error, of: flood)
    }

    @Test(arguments: Answer.Flood.allCases)
    func aDocumentEndsWhereLinesHaveNoEnd(flood: Answer.Flood) async throws {
        server.answer("/pack", with: .flood(flood))
        let request = FetchRequest(mirrors: [server.url("/pack")], limit: .mebibytes(1))
        var error: TransferError?
        do {
            _ = try await withEngine(Self.configuration(for: flood)) {
                try await $0.fetch(request)
            }
        } catch let failure as TransferError {
            error = failure
        }
        try expectRefusal(error, of: flood)
    }

    private func expectRefusal(_ error: TransferError?, of flood: Answer.Flood) throws {
        let url = server.url("/pack")
        let (fields, bytes) = ResponseHead.limits
        let head = "its head has more than \(fields) fields or \(bytes) bytes"
        let lines = "its heads and trailers have more than \(Exchange.lineLimit) bytes"
        switch flood {
        case .fields, .field, .continuations:
            #expect(error == .unacceptable(url: url, .answer(head)))
        case .emptyLines:
            let reason = TransferError.Unacceptable.answer(
                "it does not begin with an HTTP status line"
            )
            #expect(error == .unacceptable(url: url, reason))
        case .interim, .trailers:
            #expect(error == .unacceptable(url: url, .answer(lines)))
        case .trailer:
            let reason = "its trailers have a line of more than 102400 bytes"
            #expect(error == .unacceptable(url: url, .answer(reason)))
        case .chunkExtension:
            #expect(
                error
                    == .unreachable(
                        url: url,
                        .timeout,
                        detail: "the transfer stalled for 2 seconds"
                    )
            )
            // The client discards the flood, so only the time limit ends it.
            return
        }
        #expect(server.counts(for: "/pack").bytes < Self.mostSent)
    }
}
