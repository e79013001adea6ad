import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

/// A first run is cut off at half of 2 MiB; a second run, with a new engine and partial file, uses a server whose content changed
/// meanwhile.
@Suite(.server) struct ResumeTests {
    static let size = 2 << 20
    static let half = size / 2
    static let old = noise(size, seed: 1)
    static let new = noise(size, seed: 2)

    let server = TestServer.current
    let folder: TemporaryDirectory

    init() throws { folder = try TemporaryDirectory() }

    func open(boot: BootID = .current) throws -> PartialFile {
        try PartialFile.open("pack", in: folder.directory, boot: boot)
    }

    /// Receives the first half of the old content.
    func interrupt(_ answer: Answer = .content(old)) async throws {
        server.answer("/pack", with: answer.cut(after: Self.half))
        let request = DownloadRequest(server.url("/pack"), content: Self.old)
        let error = await failure(of: request, to: try open(), .single)
        guard case .unreachable = error else {
            Issue.record("expected an interrupted transfer, found \(String(describing: error))")
            return
        }
    }

    private func record() throws -> PartialFileRecord? {
        guard let file = try folder.directory.file(reading: "pack.state") else { return nil }
        return PartialFileRecord.decode(try file.readAll(limit: 9999))
    }

    /// Resumes with the current content of the server.
    func resume(
        with answers: Answer...,
        expecting content: [UInt8],
        events: Events = Events(),
        boot: BootID = .current,
        isContentAddressed: Bool = false
    ) async throws -> DownloadReceipt {
        server.answer("/pack", with: answers)
        var request = DownloadRequest(server.url("/pack"), content: content, events: events)
        request.isContentAddressed = isContentAddressed
        let part = try open(boot: boot)
        let receipt = try await download(request, to: part)
        #expect(fileContent(part.path) == content)
        return receipt
    }

    @Test func stable() async throws {
        try await interrupt()
        let events = Events()
        let receipt = try await resume(
            with: .content(Self.old),
            expecting: Self.old,
            events: events
        )
        #expect(receipt.bytesReceived == ByteCount(Self.size - Self.half))
        #expect(receipt.bytesReused == ByteCount(Self.half))
        #expect(events.offsets == [Int64(Self.half)])
        let last = server.requests.last
        #expect(last?["range"] == "bytes=\(Self.half)-")
        #expect(last?["if-range"] == Answer.content(Self.old).entityTag)
        #expect(last?["accept-encoding"] == "identity")
    }

    @Test func changedAtTheSameSize() async throws {
        try await interrupt()
        let receipt = try await resume(with: .content(Self.new), expecting: Self.new)
        #expect(receipt.bytesReceived == ByteCount(Self.size))
        #expect(receipt.bytesReused == .zero)
        #expect(server.counts(for: "/pack").requests == 2)
    }

    @Test func changedAtTheSameSizeAndIfRangeIgnored() async throws {
        try await interrupt()
        let events = Events()
        _ = try await resume(
            with: .content(Self.new).ignoringIfRange(),
            expecting: Self.new,
            events: events
        )
        #expect(events.restarts == [.unreliableRanges("206 of another version")])
    }

    @Test func rangeIgnored() async throws {
        try await interrupt()
        let answer = Answer.content(Self.new).ignoringRanges()
        let receipt = try await resume(with: answer, expecting: Self.new)
        #expect(receipt.bytesReceived == ByteCount(Self.size))
        #expect(receipt.attempts == 1)
    }

    @Test(arguments: [-7, -4096])
    func wrongStart(shift: Int) async throws {
        try await interrupt()
        let events = Events()
        let answer = Answer.content(Self.new).ignoringIfRange().with {
            $0.rangeShift = shift
            $0.entityTag = nil
        }
        _ = try await resume(with: answer, expecting: Self.new, events: events)
        let detail = "206 from \(Self.half - shift), not \(Self.half)"
        #expect(events.restarts == [.unreliableRanges(detail)])
        #expect(server.requests.last?["range"] == nil)
    }

    @Test func alignedStartWithTheSameContent() async throws {
        try await interrupt()
        let answer = Answer.content(Self.old).with { $0.rangeShift = 4096 }
        let receipt = try await resume(with: answer, expecting: Self.old)
        #expect(receipt.bytesReceived == ByteCount(Self.half + 4096))
    }

    @Test func alignedStartWithOtherContent() async throws {
        try await interrupt()
        let events = Events()
        let answer = Answer.content(Self.new).ignoringIfRange().with {
            $0.rangeShift = 4096
            $0.entityTag = nil
        }
        _ = try await resume(
            with: answer,
            expecting: Self.new,
            events: events,
            isContentAddressed: true
        )
        #expect(events.restarts == [.contentChanged])
    }

    /// Without a digest, a part of the new content could be appended to the old content.
    @Test func aPartWithoutValidatorIsNotAppended() async throws {
        try await interrupt()
        let events = Events()
        let answer = Answer.content(Self.new).ignoringIfRange().tagged(nil)
        _ = try await resume(with: answer, expecting: Self.new, events: events)
        #expect(events.restarts == [.unreliableRanges("206 without a validator")])
        #expect(server.requests.map { $0["range"] } == [nil, "bytes=\(Self.half)-", nil])
    }

    @Test(arguments: [
        Answer.status(400), .status(403), .status(404), .status(405), .status(410), .status(501),
        .status(505), .status(204),
        .content(old).ignoringRanges().field("Content-Encoding", "gzip"),
    ])
    func aServerThatRefusesRangesOnlyGivesTheWhole(refusal: Answer) async throws {
        try await interrupt()
        let receipt = try await resume(
            with: refusal,
            .content(Self.old),
            expecting: Self.old
        )
        #expect(receipt.bytesReceived >= ByteCount(Self.size))
        #expect(receipt.bytesReused == .zero)
        #expect(server.requests.map { $0["range"] } == [nil, "bytes=\(Self.half)-", nil])
    }

    @Test(arguments: [Answer.status(500), .status(502), .status(504), .dropped])
    func aServerThatFailsForRangesOnlyGivesTheWhole(failure: Answer) async throws {
        try await interrupt()
        let receipt = try await resume(
            with: failure,
            failure,
            failure,
            .content(Self.old),
            failure,
            .content(Self.old),
            failure,
            .content(Self.old),
            failure,
            .content(Self.old),
            expecting: Self.old
        )
        #expect(receipt.bytesReused == .zero)
        let range = "bytes=\(Self.half)-"
        let expected: [String?] = [
            nil, range, range, range, nil, range, nil, range, nil, range, nil,
        ]
        #expect(server.requests.map { $0["range"] } == expected)
    }

    /// The server responds to the first probe, fails for the next request, and then responds to all.
    @Test func anOutageCostsNoBytesThatAreThere() async throws {
        try await interrupt()
        let receipt = try await resume(
            with: .dropped,
            .dropped,
            .dropped,
            .content(Self.old),
            .dropped,
            .content(Self.old),
            .content(Self.old),
            expecting: Self.old
        )
        #expect(receipt.bytesReused == ByteCount(Self.half))
        let range = "bytes=\(Self.half)-"
        let expected: [String?] = [nil, range, range, range, nil, range, nil, range]
        #expect(server.requests.map { $0["range"] } == expected)
    }

    /// The received bytes can be completed by another mirror.
    @Test func aMirrorThatRefusesEverythingCostsNoBytes() async throws {
        try await interrupt()
        server.answer("/gone", with: .status(404))
        server.answer("/pack", with: .content(Self.old))
        var request = DownloadRequest(
            server.url("/gone"),
            server.url("/pack", host: "localhost"),
            content: Self.old
        )
        request.isContentAddressed = true
        let receipt = try await download(request, to: try open())
        #expect(receipt.bytesReceived == ByteCount(Self.size - Self.half))
        #expect(server.requests(for: "/gone").map { $0["range"] != nil } == [true, false])
    }

    /// Each download starts again at the first byte, and is cut off later than the previous one, or earlier.
    @Test func bytesThatWereLostAreNoProgress() async throws {
        let content = Answer.content(Self.old).tagged(nil)
        let cuts = [content.cut(after: Self.half), content.cut(after: Self.half + (1 << 19))]
        server.answer("/pack", with: (0..<40).map { cuts[$0 % 2] })
        let request = DownloadRequest(server.url("/pack"), content: Self.old)
        guard case .unreachable = await failure(of: request, to: try open()) else {
            Issue.record("expected an interrupted transfer")
            return
        }
        // The second download was progress; the three further ones were not.
        #expect(server.requests.count <= 5)
    }

    /// Returns the error of a download, and checks that the received half is kept.
    func refusal(_ answer: Answer) async throws -> TransferError? {
        try await interrupt()
        server.answer("/pack", with: answer)
        let request = DownloadRequest(server.url("/pack"), content: Self.old)
        let error = await failure(of: request, to: try open())
        let part = try open()
        #expect(part.length == ByteCount(Self.half))
        #expect(fileContent(part.path) == Array(Self.old[..<Self.half]))
        return error
    }

    @Test(arguments: [100, half, size - 1, size + 1, size * 2])
    func shrunkOrGrown(size: Int) async throws {
        let error = try await refusal(.content(noise(size, seed: 3)))
        let url = server.url("/pack")
        let expected = TransferError.wrongSize(
            url: url,
            expected: ByteCount(Self.size),
            actual: ByteCount(size)
        )
        #expect(error == expected)
    }

    @Test func portalByRedirect() async throws {
        server.answer("/login", with: .portal)
        let target = server.url("/login", host: "localhost")
        let error = try await refusal(.redirect(to: target))
        #expect(error == .captivePortal(url: server.url("/pack"), answeredBy: target))
    }

    @Test func portalInPlace() async throws {
        let error = try await refusal(.portal)
        let url = server.url("/pack")
        #expect(error == .captivePortal(url: url, answeredBy: url))
    }

    @Test func portalByStatus() async throws {
        let error = try await refusal(.status(511))
        let url = server.url("/pack")
        #expect(error == .captivePortal(url: url, answeredBy: url))
    }

    @Test(arguments: [nil, "W/\"weak\"", "bare"])
    func withoutAStrongValidatorNothingIsContinued(tag: String?) async throws {
        try await interrupt(.content(Self.old).tagged(tag))
        let answer = Answer.content(Self.old).tagged(tag).ignoringIfRange()
        let receipt = try await resume(with: answer, expecting: Self.old)
        #expect(receipt.bytesReceived == ByteCount(Self.size))
        #expect(server.requests.last?["range"] == nil)
    }

    @Test func contentKnownByItsDigestIsContinuedWithoutValidator() async throws {
        try await interrupt(.content(Self.old).tagged(nil))
        let receipt = try await resume(
            with: .content(Self.old).tagged(nil),
            expecting: Self.old,
            isContentAddressed: true
        )
        #expect(receipt.bytesReceived == ByteCount(Self.size - Self.half))
        #expect(server.requests.last?["if-range"] == nil)
    }

    @Test func aDateThatCountsAsStrongIsSentBack() async throws {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT"
        let answer = Answer.content(Self.old).tagged(nil).field("Last-Modified", date)
        try await interrupt(answer)
        let receipt = try await resume(with: answer.ignoringIfRange(), expecting: Self.old)
        #expect(server.requests.last?["if-range"] == date)
        #expect(receipt.bytesReceived == ByteCount(Self.size - Self.half))
    }

    @Test func anotherBootCountsOnlyWhatIsOnDisk() async throws {
        try await interrupt()
        // The record says how many bytes are durable; more bytes were written after them.
        let durable = Self.half - 5000
        var record = try #require(try record())
        record.durable = Int64(durable)
        try folder.directory.write(record.encoded(), to: "pack.state", durably: false)
        let part = try open(boot: BootID("another"))
        #expect(part.length == ByteCount(durable))
        // Bytes that may not be on disk are discarded, because they must not count once new bytes follow.
        #expect(fileContent(part.path) == Array(Self.old[..<durable]))
        let receipt = try await resume(
            with: .content(Self.old),
            expecting: Self.old,
            boot: BootID("another")
        )
        #expect(receipt.bytesReceived == ByteCount(Self.size - durable))
    }

    @Test func resumedBytesCountInTheBootThatResumedThem() async throws {
        try await interrupt()
        let boot = BootID("another")
        server.answer("/pack", with: .content(Self.old).cut(after: 5000))
        let request = DownloadRequest(server.url("/pack"), content: Self.old)
        let part = try open(boot: boot)
        let received = part.length
        var configuration = TransferConfiguration.single
        // The state without the last checkpoint, as after a kill.
        configuration.checkpoint.smallest = .mebibytes(100)
        let error = await failure(of: request, to: part, configuration)
        #expect(error != nil)
        #expect(try open(boot: boot).length == received + ByteCount(5000))
    }

    @Test func theSameBootCountsEverything() async throws {
        try await interrupt()
        var record = try #require(try record())
        record.durable = 0
        try folder.directory.write(record.encoded(), to: "pack.state", durably: false)
        #expect(try open().length == ByteCount(Self.half))
    }

    @Test(
        arguments: ["", "{", "[]", "{\"format\":2}", "null", "\u{0}"] + [
            PartialFileRecord.text(generation: .max, total: 10, durable: 0),
            PartialFileRecord.text(generation: 1 << 30, total: 10, durable: 0),
            PartialFileRecord.text(generation: 0, total: 10, durable: 0),
            PartialFileRecord.text(generation: 1, total: -1, durable: 0),
            PartialFileRecord.text(generation: 1, total: .min, durable: -1),
            PartialFileRecord.text(generation: 1, total: 10, durable: .max),
        ]
    )
    func aRecordThatCannotBeReadCountsAsNone(text: String) async throws {
        try await interrupt()
        try folder.directory.write(Array(text.utf8), to: "pack.state", durably: false)
        #expect(try open().length == .zero)
        let receipt = try await resume(with: .content(Self.old), expecting: Self.old)
        #expect(receipt.bytesReceived == ByteCount(Self.size))
    }

    @Test func aRecordCutAnywhereCountsAsNoneOrIsWhole() async throws {
        let record = PartialFileRecord(
            generation: 3,
            total: 10,
            durable: 5,
            validator: .entityTag("\"a\""),
            url: "http://a/b",
            boot: "x"
        )
        let bytes = record.encoded()
        #expect(PartialFileRecord.decode(bytes) == record)
        for count in bytes.indices {
            #expect(PartialFileRecord.decode(Array(bytes[..<count])) == nil)
        }
    }

    @Test func completeContentIsNotAskedForAgain() async throws {
        server.answer("/pack", with: .content(Self.old))
        let request = DownloadRequest(server.url("/pack"), content: Self.old)
        try await download(request, to: try open())
        let events = Events()
        let receipt = try await resume(with: .status(500), expecting: Self.old, events: events)
        #expect(receipt.attempts == 0)
        #expect(receipt.url == nil)
        #expect(receipt.bytesReused == ByteCount(Self.size))
        #expect(events.offsets == [Int64(Self.size)])
        #expect(server.counts(for: "/pack").requests == 1)
    }

    /// The manifest has another size than the partially or completely received version.
    @Test(arguments: [true, false])
    func contentOfAnotherSizeIsNotContinued(isPart: Bool) async throws {
        if isPart {
            try await interrupt()
        } else {
            server.answer("/pack", with: .content(Self.old))
            try await download(
                DownloadRequest(server.url("/pack"), content: Self.old),
                to: try open()
            )
        }
        let content = Array(Self.new.dropLast())
        let receipt = try await resume(
            with: .content(content),
            expecting: content,
            isContentAddressed: true
        )
        #expect(server.requests.last?["range"] == nil)
        #expect(receipt.attempts == 1 && receipt.bytesReused == .zero)
        #expect(receipt.bytesReceived == ByteCount(content.count))
    }

    /// Without a record, it is unknown which bytes of large content are on disk.
    @Test func largeContentWithoutARecordIsNotContinued() async throws {
        try await interrupt()
        try folder.directory.remove("pack.state")
        let size = ByteCount(Self.size)
        let part = try PartialFile.open("pack", in: folder.directory, digestedSize: size)
        #expect(part.length == .zero)
        let receipt = try await resume(with: .content(Self.old), expecting: Self.old)
        #expect(receipt.bytesReceived == size)
    }

    @Test func removingLeavesNothing() async throws {
        try await interrupt()
        try open().remove()
        #expect(try folder.directory.entries().isEmpty)
    }

    /// Receives half of the content from `/pack`, which redirects to `first`, and the rest when it redirects to `second`.
    private func receive(
        from first: String,
        then second: String,
        events: Events,
        _ change: (inout DownloadRequest) -> Void = { _ in }
    ) async throws -> [UInt8]? {
        server.answer("/pack", with: .redirect(to: first), .redirect(to: second))
        server.answer(first, with: .content(Self.old).cut(after: Self.half))
        let later = Answer.content(first.prefix(2) == second.prefix(2) ? Self.old : Self.new)
        // A server that numbers versions gives both contents the same entity tag.
        server.answer(second, with: later.tagged(Answer.content(Self.old).entityTag))
        var request = DownloadRequest(
            mirrors: [server.url("/pack")],
            size: nil,
            verify: { (_: FilePath) async throws(TransferError) -> DigestMismatch? in nil },
            report: { events.append($0) }
        )
        change(&request)
        let interrupted = await failure(of: request, to: try open(), .single)
        #expect(interrupted != nil)
        let part = try open()
        try await download(request, to: part)
        return fileContent(part.path)
    }

    @Test func anotherResourceIsNotContinued() async throws {
        let events = Events()
        let content = try await receive(from: "/a?sign=1", then: "/b?sign=1", events: events)
        let isNew = content == Self.new
        #expect(isNew)
        #expect(events.restarts == [.contentChanged])
        let ranges = server.requests(for: "/b?sign=1").map { $0["range"] }
        #expect(ranges == ["bytes=\(Self.half)-", nil])
        #expect(server.requests(for: "/pack").count == 3)
    }

    /// The server redirects each request to another resource.
    @Test func fromTheSecondResourceOnTheValidatorDecides() async throws {
        let events = Events()
        let whole = Answer.content(Self.new)
        server.answer(
            "/pack",
            with: .redirect(to: "/a"),
            .redirect(to: "/b"),
            .redirect(to: "/c"),
            .redirect(to: "/d")
        )
        for path in ["/a", "/b", "/c"] { server.answer(path, with: whole.cut(after: Self.half)) }
        server.answer("/d", with: whole)
        let request = DownloadRequest(
            mirrors: [server.url("/pack")],
            size: nil,
            verify: { (_: FilePath) async throws(TransferError) -> DigestMismatch? in nil },
            report: { events.append($0) }
        )
        let first = await failure(of: request, to: try open(), .single)
        // The first range belongs to another resource, and the second request is cut off.
        let second = await failure(of: request, to: try open(), .single)
        #expect(first != nil && second != nil)
        let part = try open()
        try await download(request, to: part)
        let isWhole = fileContent(part.path) == Self.new
        #expect(isWhole)
        #expect(events.restarts == [.contentChanged])
        #expect(server.requests(for: "/d").map { $0["range"] } == ["bytes=\(Self.half)-"])
    }

    @Test func aResourceWithAnotherSignatureIsContinued() async throws {
        let events = Events()
        let content = try await receive(from: "/a?sign=1", then: "/a?sign=2", events: events)
        let isOld = content == Self.old
        #expect(isOld)
        #expect(events.restarts == [])
        #expect(events.offsets.last == Int64(Self.half))
    }

    @Test func anotherResourceIsContinuedWhereADigestDecides() async throws {
        let events = Events()
        _ = try await receive(from: "/a", then: "/b", events: events) { $0.comparesDigest = true }
        #expect(events.restarts == [])
        #expect(events.offsets.last == Int64(Self.half))
    }
}

extension PartialFileRecord {
    /// The text of a record with these numbers.
    fileprivate static func text(generation: Int, total: Int64, durable: Int64) -> String {
        let record = PartialFileRecord(
            generation: generation,
            total: total,
            durable: durable,
            validator: nil,
            url: "http://a/b",
            boot: BootID.current.text
        )
        return String(decoding: record.encoded(), as: UTF8.self)
    }
}
