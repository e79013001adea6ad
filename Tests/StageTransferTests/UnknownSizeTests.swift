import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

/// Content whose size only the server knows, and whose digest is unknown: the tests compare the written bytes with
/// the sent ones.
@Suite(.server) struct UnknownSizeTests {
    static let size = 2 << 20
    static let half = size / 2
    static let old = noise(size, seed: 1)
    static let new = noise(size, seed: 2)

    let server = TestServer.current
    let folder: TemporaryDirectory

    init() throws { folder = try TemporaryDirectory() }

    private func open(boot: BootID = .current) throws -> PartialFile {
        try PartialFile.open("pack", in: folder.directory, boot: boot)
    }

    private func request(_ events: Events = Events()) -> DownloadRequest {
        DownloadRequest(mirrors: [server.url("/pack")], size: nil) { _ in
            nil
        } report: {
            events.append($0)
        }
    }

    /// Downloads the content from the server, and compares it with the expected content.
    private func receive(
        _ content: [UInt8],
        _ events: Events = Events()
    ) async throws -> DownloadReceipt {
        let part = try open()
        let receipt = try await download(request(events), to: part)
        #expect(fileContent(part.path) == content)
        return receipt
    }

    /// Receives the first half of the old content.
    private func interrupt(_ answer: Answer = .content(old)) async throws {
        server.answer("/pack", with: answer.cut(after: Self.half))
        let error = await failure(of: request(), to: try open(), .single)
        guard case .unreachable = error else {
            Issue.record("expected an interrupted transfer, found \(String(describing: error))")
            return
        }
    }

    @Test(arguments: [0, 1, 1 << 18, 1 << 18 + 1, 3 << 20], [false, true])
    func contentOfAnySizeArrives(size: Int, isChunked: Bool) async throws {
        let content = noise(size)
        server.answer("/pack", with: .content(content).with { $0.isChunked = isChunked })
        let events = Events()
        let receipt = try await receive(content, events)
        #expect(receipt.status == 200)
        #expect(receipt.bytesReceived == ByteCount(size))
        #expect(receipt.attempts == 1)
        #expect(events.offsets == [0])
        if size > 0 { #expect(events.all.last == .received(ByteCount(size))) }
    }

    /// The first bytes of longer content have the expected size, and no digest tells that they are not all of it.
    @Test func aBodyLongerThanTheExpectedSizeLeavesNoBytes() async throws {
        server.answer("/pack", with: .content(Self.old).chunked())
        var request = request()
        request.size = ByteCount(Self.size - 1)
        let part = try open()
        let error = await failure(of: request, to: part, .single)
        let expected = TransferError.wrongSize(
            url: server.url("/pack"),
            expected: ByteCount(Self.size - 1),
            actual: nil
        )
        #expect(error == expected)
        #expect(part.length == .zero)
        #expect(try open().length == .zero)
    }

    @Test func aPartWithMoreBytesThanItsRangeIsNotAppended() async throws {
        try await interrupt()
        let range = "bytes \(Self.half)-\(Self.half + 9)/\(Self.size)"
        let long = Answer.content(Self.old).chunked().field("Content-Range", range)
        server.answer("/pack", with: long, .content(Self.new))
        let events = Events()
        _ = try await receive(Self.new, events)
        #expect(events.restarts == [.unreliableRanges("206 with more bytes than its range")])
    }

    @Test func theTotalIsKnownOnceTheServerHasSentIt() async throws {
        try await interrupt()
        #expect(try open().total == ByteCount(Self.size))
        server.answer("/pack", with: .content(Self.new).chunked())
        let part = try open()
        try await download(request(), to: part)
        #expect(part.total == nil)
    }

    @Test(arguments: [0, 1, half, size])
    func aLastChunkThatIsMissingIsNeverASuccess(count: Int) async throws {
        server.answer("/pack", with: .content(Self.old).chunked().cut(after: count))
        guard case .unreachable = await failure(of: request(), to: try open(), .single) else {
            Issue.record("expected an interrupted transfer")
            return
        }
    }

    @Test(arguments: [0, 1, half, size - 1])
    func aBodyShorterThanItsLengthIsNeverASuccess(count: Int) async throws {
        server.answer("/pack", with: .content(Self.old).cut(after: count))
        guard case .unreachable = await failure(of: request(), to: try open(), .single) else {
            Issue.record("expected an interrupted transfer")
            return
        }
    }

    @Test(arguments: ["HTTP/1.0", "HTTP/1.1"])
    func withoutLengthAndChunksTheEndOfTheConnectionIsTheEnd(version: String) async throws {
        let answer = Answer.content(Self.old).omitting("Content-Length").with {
            $0.closes = true
            $0.version = version
        }
        server.answer("/pack", with: answer)
        let receipt = try await receive(Self.old)
        #expect(receipt.attempts == 1)
    }

    @Test func contentWithoutALengthIsReceivedFromTheStartAgain() async throws {
        server.answer(
            "/pack",
            with: .content(Self.old).chunked().cut(after: Self.half),
            .content(Self.old)
        )
        let receipt = try await receive(Self.old)
        #expect(receipt.bytesReceived == ByteCount(Self.half + Self.size))
        #expect(server.requests.map { $0["range"] } == [nil, nil])
    }

    @Test func contentWithoutALengthIsNotKeptForTheNextProcess() async throws {
        try await interrupt(.content(Self.old).chunked())
        #expect(try open().length == .zero)
        // The result is the same if a record of a version with a length exists already.
        try await interrupt()
        try await interrupt(.content(Self.new).chunked())
        #expect(try open().length == .zero)
    }

    @Test func theSameVersionIsContinued() async throws {
        try await interrupt()
        server.answer("/pack", with: .content(Self.old))
        let events = Events()
        let receipt = try await receive(Self.old, events)
        #expect(receipt.bytesReceived == ByteCount(Self.size - Self.half))
        #expect(receipt.bytesReused == ByteCount(Self.half))
        #expect(receipt.status == 206)
        #expect(events.offsets == [Int64(Self.half)])
        #expect(server.requests.last?["range"] == "bytes=\(Self.half)-")
        #expect(server.requests.last?["if-range"] == Answer.content(Self.old).entityTag)
    }

    @Test(arguments: [100, half, size, size + 1])
    func anotherVersionReplacesWhatIsHeld(size: Int) async throws {
        try await interrupt()
        let content = noise(size, seed: 3)
        server.answer("/pack", with: .content(content))
        let receipt = try await receive(content)
        #expect(receipt.bytesReceived == ByteCount(size))
        #expect(receipt.bytesReused == .zero)
        #expect(receipt.attempts == 1)
    }

    /// A server that sends ranges of its content without a validator.
    @Test func aRangeOfAnotherTotalIsNotAdded() async throws {
        try await interrupt()
        let content = noise(Self.size + 1, seed: 3)
        server.answer("/pack", with: .content(content).ignoringIfRange().tagged(nil))
        let events = Events()
        let receipt = try await receive(content, events)
        #expect(receipt.bytesReused == .zero)
        #expect(events.restarts == [.unreliableRanges("206 of another total")])
        #expect(events.offsets == [0])
    }

    @Test func aServerThatHasLessNowIsAskedForEverything() async throws {
        try await interrupt()
        let content = noise(100, seed: 3)
        server.answer("/pack", with: .content(content).ignoringIfRange())
        let events = Events()
        _ = try await receive(content, events)
        #expect(events.restarts == [.contentChanged])
    }

    @Test(arguments: [nil, "W/\"weak\""])
    func withoutAStrongValidatorNothingIsContinued(tag: String?) async throws {
        try await interrupt(.content(Self.old).tagged(tag))
        server.answer("/pack", with: .content(Self.new).tagged(tag).ignoringIfRange())
        _ = try await receive(Self.new)
        #expect(server.requests.last?["range"] == nil)
    }

    @Test func completeContentIsConfirmedByTheServer() async throws {
        server.answer("/pack", with: .content(Self.old))
        _ = try await receive(Self.old)
        let events = Events()
        let receipt = try await receive(Self.old, events)
        #expect(receipt.bytesReceived == .zero)
        #expect(receipt.bytesReused == ByteCount(Self.size))
        #expect(receipt.attempts == 1)
        #expect(receipt.status == nil)
        #expect(events.offsets == [Int64(Self.size)])
        #expect(server.requests.last?["range"] == "bytes=\(Self.size)-")
    }

    @Test func completeContentThatChangedIsReplaced() async throws {
        server.answer("/pack", with: .content(Self.old))
        _ = try await receive(Self.old)
        server.answer("/pack", with: .content(Self.new))
        _ = try await receive(Self.new)
        // A server that checks the range before `If-Range`, and sends the entity tag.
        server.answer("/pack", with: .content(Self.old).ignoringIfRange())
        let events = Events()
        _ = try await receive(Self.old, events)
        #expect(events.restarts == [.contentChanged])
    }

    @Test func completeContentKnownByItsDigestIsNotAskedFor() async throws {
        server.answer("/pack", with: .content(Self.old).tagged(nil))
        _ = try await receive(Self.old)
        var request = request()
        request.isContentAddressed = true
        let receipt = try await download(request, to: try open())
        #expect(receipt.attempts == 0)
        #expect(server.requests.count == 1)
    }

    @Test func anEncodedBodyIsRefused() async throws {
        server.answer("/pack", with: .content(Self.old).field("Content-Encoding", "gzip"))
        let error = await failure(of: request(), to: try open())
        #expect(error == .unacceptable(url: server.url("/pack"), .contentEncoding("gzip")))
    }

    @Test(arguments: [0, 5000, 1 << 20])
    func aLocalFileIsCopiedWhole(size: Int) async throws {
        let content = noise(size)
        try folder.directory.write(content, to: "source", durably: false)
        var request = request()
        request.mirrors = ["file://\(folder.directory.path)/source"]
        let part = try open()
        let receipt = try await download(request, to: part)
        #expect(fileContent(part.path) == content)
        #expect(receipt.status == nil)
    }

    /// Responses with correct validators, most of them truncated.
    private static func answer(_ numbers: inout JitterGenerator) -> Answer {
        let content = noise(200_000 + Int.random(in: 0...1, using: &numbers), seed: 5)
        let other = noise(200_000, seed: 6)
        let cut = Int.random(in: 0...200_000, using: &numbers)
        let good = Answer.content(content)
        switch Int.random(in: 0..<10, using: &numbers) {
        case 0: return good.ignoringRanges().cut(after: cut)
        case 1: return good.tagged(nil).cut(after: cut)
        case 2: return good.with { $0.rangeShift = cut - 100_000 }.cut(after: cut)
        case 3: return Answer.content(other).cut(after: cut)
        case 4: return Answer.content(other).ignoringIfRange().cut(after: cut)
        case 5: return good.chunked().cut(after: cut)
        case 6: return Answer.content(Array(other[..<cut]))
        case 7: return good.omitting("Content-Range").cut(after: cut)
        case 8: return good.chunked()
        default: return good.cut(after: cut)
        }
    }

    @Test(arguments: 0..<12)
    func twoVersionsAreNeverMixed(seed: Int) async throws {
        var numbers = JitterGenerator(seed: UInt64(seed))
        for _ in 0..<6 {
            let answers = (0..<4).map { _ in Self.answer(&numbers) }
            server.answer("/pack", with: answers)
            let part = try open()
            guard await failure(of: request(), to: part) == nil else { continue }
            let content = fileContent(part.path)
            // A later round may confirm the file that an earlier one completed.
            #expect(answers.contains { $0.content == content })
        }
    }
}
