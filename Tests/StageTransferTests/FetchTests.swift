import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import StageTransfer

@Suite(.server) struct FetchTests {
    let server = TestServer.current
    static let document = Array("{\"packs\":[]}".utf8)

    private func fetch(
        _ change: (inout FetchRequest) -> Void = { _ in }
    ) async throws -> FetchedContent {
        var request = FetchRequest(mirrors: [server.url("/manifest")], limit: ByteCount(100))
        change(&request)
        let ready = request
        return try await withEngine { try await $0.fetch(ready) }
    }

    private func failure() async -> TransferError? {
        do {
            _ = try await fetch()
            return nil
        } catch {
            return error as? TransferError
        }
    }

    @Test func aDocumentComesWithItsValidator() async throws {
        server.answer("/manifest", with: .redirect(to: "/real"))
        server.answer("/real", with: .content(Self.document).tagged("\"7\""))
        let content = try await fetch()
        let expected = FetchedDocument(
            bytes: Self.document,
            entityTag: "\"7\"",
            url: server.url("/real")
        )
        #expect(content == .document(expected))
    }

    @Test func aDocumentThatIsHeldIsNotSentAgain() async throws {
        server.answer("/manifest", with: .content(Self.document).tagged("\"7\""))
        let same = try await fetch { $0.entityTag = "\"7\"" }
        #expect(same == .notModified)
        let other = try await fetch { $0.entityTag = "\"6\"" }
        #expect(other != .notModified)
    }

    /// Another mirror may have the same entity tag for another version, and relative URLs in the document lead elsewhere there.
    @Test func anEntityTagIsSentOnlyToTheResourceOfItsDocument() async throws {
        server.answer("/manifest", with: .redirect(to: "/real"))
        server.answer("/real", with: .content(Self.document).tagged("\"7\""))
        server.answer("/other", with: .content([1]).tagged("\"7\""))
        let same = try await fetch {
            $0.entityTag = "\"7\""
            $0.entityTagURL = server.url("/real")
        }
        #expect(same == .notModified)
        let other = try await fetch {
            $0.mirrors = [server.url("/other")]
            $0.entityTag = "\"7\""
            $0.entityTagURL = server.url("/real")
        }
        let expected = FetchedDocument(
            bytes: [1],
            entityTag: "\"7\"",
            url: server.url("/other")
        )
        #expect(other == .document(expected))
        #expect(server.requests.map { $0["if-none-match"] } == [nil, "\"7\"", nil])
    }

    @Test(.alone, arguments: [false, true])
    func aShortDocumentMayArriveMoreSlowlyThanLargeContent(isChunked: Bool) async throws {
        let document = noise(3000)
        // The response takes 2.5 seconds at least, and stalls at an eighth of this rate.
        let answer = Answer.content(document).slowed(to: 1200)
        server.answer("/manifest", with: isChunked ? answer.chunked() : answer)
        var configuration = TransferConfiguration.single
        configuration.stall = StallRule(minimum: .kibibytes(60), window: .seconds(2))
        let request = FetchRequest(mirrors: [server.url("/manifest")], limit: .mebibytes(1))
        let content = try await withEngine(configuration) { try await $0.fetch(request) }
        guard case .document(let fetched) = content else {
            Issue.record("\(content)")
            return
        }
        #expect(fetched.bytes == document)
    }

    /// The size of a body, the number of missing bytes, and the number that must arrive in a window.
    static let windows: [(size: Int64, missing: Int64, minimum: Int64)] = [
        (1 << 30, 1 << 30, 61_440), (1 << 30, 61_440, 61_440), (1 << 30, 61_439, 6144),
        (61_440, 61_440, 61_440), (61_439, 61_439, 6143), (20_480, 20_480, 2048),
        (20_480, 100, 2048), (9, 9, 1), (0, 0, 1),
    ]

    @Test(arguments: windows)
    func aShortBodyNeedsATenthInEachWindow(size: Int64, missing: Int64, minimum: Int64) {
        #expect(StallRule().minimum(ofBody: size, missing: missing) == minimum)
    }

    /// The number of past windows, the bytes that arrived in them, and the number that must arrive in the next one.
    static let windowsOfUnknownSizes: [(windows: Int, received: Int64, minimum: Int64)] = [
        (0, 0, 1), (9, 61_439, 1), (9, 61_440, 61_440), (10, 61_439, 61_440),
    ]

    @Test(arguments: windowsOfUnknownSizes)
    func theFirstBytesOfAnUnknownSizeNeedNoRate(windows: Int, received: Int64, minimum: Int64) {
        #expect(StallRule().minimum(afterWindows: windows, received: received) == minimum)
    }

    /// Caches may treat an old version as current for days.
    @Test func aDocumentThatChangesIsAskedOfItsServer() async throws {
        server.answer("/manifest", with: .content(Self.document).tagged("\"7\""))
        _ = try await fetch()
        _ = try await fetch {
            $0.isRevalidated = true
            $0.entityTag = "\"7\""
        }
        #expect(server.requests.map { $0["cache-control"] } == [nil, "max-age=0"])
        #expect(server.requests.map { $0["if-none-match"] } == [nil, "\"7\""])
    }

    @Test func aFailureThatPassesIsTriedAgain() async throws {
        server.answer("/manifest", with: .dropped, .status(500), .content(Self.document))
        guard case .document(let document) = try await fetch() else {
            Issue.record("expected a document")
            return
        }
        #expect(document.bytes == Self.document)
    }

    @Test func aDocumentIsNotLargerThanItMayBe() async throws {
        let error = TransferError.unacceptable(
            url: server.url("/manifest"),
            .size(limit: ByteCount(100))
        )
        server.answer("/manifest", with: .content(noise(101)))
        #expect(await failure() == error)
        server.answer("/manifest", with: .content(noise(50)).chunked().with { $0.isEndless = true })
        #expect(await failure() == error)
        server.answer("/manifest", with: .content(noise(100)))
        #expect(await failure() == nil)
    }

    @Test func aDocumentThatIsNotAcceptedComesFromAnotherMirror() async throws {
        server.answer("/old", with: .content([1]))
        server.answer("/manifest", with: .content(Self.document))
        let mirrors = [server.url("/old"), server.url("/manifest")]
        let refuse: @concurrent @Sendable (FetchedContent) async -> String? = { content in
            guard case .document(let document) = content else { return "no document" }
            return document.bytes == Self.document ? nil : "it is old"
        }
        let content = try await fetch {
            $0.mirrors = mirrors
            $0.refusal = refuse
        }
        guard case .document(let document) = content else {
            Issue.record("expected a document")
            return
        }
        #expect(document.url == server.url("/manifest"))
        server.answer("/manifest", with: .content([2]))
        await #expect(
            throws: TransferError.unacceptable(url: mirrors[1], .answer("it is old"))
        ) {
            try await fetch {
                $0.mirrors = mirrors
                $0.refusal = refuse
            }
        }
    }

    /// A mirror without range support must not hide one with it.
    @Test(arguments: [
        Answer.content(noise(1000)).ignoringRanges(), .status(501),
        .content(noise(1000, seed: 9)).field("Content-Type", "multipart/byteranges; boundary=x"),
    ])
    func aRangeComesFromAMirrorThatHasRanges(first: Answer) async throws {
        server.answer("/whole", with: first)
        server.answer("/manifest", with: .content(noise(1000)))
        let mirrors = [server.url("/whole"), server.url("/manifest", host: "localhost")]
        let content = try await fetch {
            $0.mirrors = mirrors
            $0.part = (10..<20, 1000)
        }
        guard case .document(let document) = content else {
            Issue.record("expected a range")
            return
        }
        #expect(document.bytes == Array(noise(1000)[10..<20]))
    }

    @Test func aRangeThatAFileDoesNotHaveComesFromAnotherMirror() async throws {
        let directory = try TemporaryDirectory()
        let content = noise(1000)
        try directory.directory.write(Array(content[..<15]), to: "short", durably: false)
        server.answer("/manifest", with: .content(content))
        let mirrors = ["file://\(directory.directory.path)/short", server.url("/manifest")]
        let result = try await fetch {
            $0.mirrors = mirrors
            $0.part = (10..<20, 1000)
        }
        let expected = FetchedDocument(
            bytes: Array(content[10..<20]),
            entityTag: Answer.content(content).entityTag,
            url: mirrors[1]
        )
        #expect(result == .document(expected))
    }

    /// The caller needs this error: it may then request the whole content from that mirror.
    @Test(arguments: [Answer.status(404), .dropped])
    func theErrorOfAMirrorWithoutRangesTakesPrecedence(other: Answer) async throws {
        server.answer("/manifest", with: .content(noise(1000)).ignoringRanges())
        server.answer("/other", with: other)
        let mirrors = [server.url("/manifest"), server.url("/other", host: "localhost")]
        await #expect(throws: TransferError.unacceptable(url: mirrors[0], .ranges)) {
            try await fetch {
                $0.mirrors = mirrors
                $0.part = (10..<20, 1000)
            }
        }
    }

    /// Without a `Content-Length`, a connection that breaks looks like the end of the body.
    @Test(arguments: [0..<1000, 10..<500] as [Range<Int64>])
    func aBodyWithoutALengthThatEndsEarlyIsRequestedAgain(range: Range<Int64>) async throws {
        let answer = Answer.content(noise(1000)).omitting("Content-Length")
        server.answer("/manifest", with: answer.cut(after: 5), answer)
        let content = try await fetch {
            $0.limit = ByteCount(1000)
            $0.part = (range, 1000)
        }
        guard case .document(let document) = content else {
            Issue.record("expected a document")
            return
        }
        #expect(document.bytes == Array(noise(1000)[Int(range.lowerBound)..<Int(range.upperBound)]))
    }

    @Test func aWholeObjectOfAnotherSizeIsRefused() async {
        server.answer("/manifest", with: .content(noise(900)))
        let url = server.url("/manifest")
        let error = TransferError.wrongSize(
            url: url,
            expected: ByteCount(1000),
            actual: ByteCount(900)
        )
        await #expect(throws: error) {
            try await fetch {
                $0.limit = ByteCount(1000)
                $0.part = (0..<1000, 1000)
            }
        }
    }

    @Test func aTransferEndsOnceItsConsumerNeedsNoMoreBytes() async {
        server.answer("/manifest", with: Answer.content(noise(1000)).with { $0.isEndless = true })
        let count = Mutex(0)
        await #expect(throws: TransferError.cancelled) {
            try await fetch {
                $0.limit = .mebibytes(64)
                $0.take = { piece in
                    guard case .bytes(let bytes) = piece else { return }
                    count.withLock { $0 += bytes.count }
                }
                $0.isWanted = { count.withLock { $0 } < 1 << 20 }
            }
        }
    }

    @Test func aPortalIsRecognised() async throws {
        server.answer("/manifest", with: .portal)
        let url = server.url("/manifest")
        #expect(await failure() == .captivePortal(url: url, answeredBy: url))
    }

    @Test func aTruncatedDocumentIsNeverASuccess() async throws {
        server.answer("/manifest", with: .content(Self.document).cut(after: 5))
        guard case .unreachable = await failure() else {
            Issue.record("expected an interrupted transfer")
            return
        }
    }

    @Test func aLocalDocumentIsRead() async throws {
        let directory = try TemporaryDirectory()
        try directory.directory.write(Self.document, to: "a b", durably: false)
        let url = "file://\(directory.directory.path)/a%20b"
        let content = try await fetch { $0.mirrors = [url] }
        #expect(content == .document(FetchedDocument(bytes: Self.document, url: url)))
    }

    @Test func aServerIsReadNoFasterThanItsBytesAreTaken() async throws {
        let content = noise(6 << 20)
        server.answer("/manifest", with: .content(content))
        let receiveWindow = ReceiveWindow(limit: .mebibytes(1))
        let taken = Mutex<[UInt8]>([])
        async let result = fetch {
            $0.limit = .mebibytes(8)
            $0.receiveWindow = receiveWindow
            $0.take = { piece in
                guard case .bytes(let bytes) = piece else { return }
                taken.withLock { $0 += bytes }
            }
        }
        var removed = 0
        while removed < content.count {
            try await poll("nothing more came") { taken.withLock { $0.count } > removed }
            let count = try await pollUntilUnchanged(for: .milliseconds(100)) {
                taken.withLock { $0.count }
            }
            // The limit, and the piece that exceeds it.
            #expect(count - removed <= 3 << 19)
            receiveWindow.remove(count - removed)
            removed = count
        }
        _ = try await result
        #expect(taken.withLock { $0 } == content)
    }
}
