import Dispatch
import Glibc
import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

/// Behaviour of the engine on the wire, beyond resuming.
@Suite(.server) struct EngineTests {
    let server = TestServer.current
    let folder: TemporaryDirectory
    let part: PartialFile

    init() throws {
        folder = try TemporaryDirectory()
        part = try PartialFile.open("pack", in: folder.directory)
    }

    static let content = noise(300_000)

    @Test func aServerThatAsksToWaitIsAskedAgain() async throws {
        let events = Events()
        server.answer(
            "/pack",
            with: .dropped,
            .status(503).field("Retry-After", "0"),
            .content(Self.content)
        )
        let request = DownloadRequest(
            server.url("/pack"),
            content: Self.content,
            events: events
        )
        let receipt = try await download(request, to: part)
        #expect(receipt.attempts == 3)
        let waits = events.all.filter { if case .waiting = $0 { true } else { false } }
        #expect(waits.count == 2)
    }

    @Test func aWaitEndsWithTheTask() async throws {
        server.answer("/pack", with: .status(503).field("Retry-After", "3600"))
        var request = DownloadRequest(server.url("/pack"), content: Self.content)
        let (waiting, isWaiting) = AsyncStream.makeStream(of: Void.self)
        request.report = { event in
            if case .waiting(.server, _) = event { isWaiting.finish() }
        }
        let error = try await cancelled(request, after: waiting)
        #expect(error == .cancelled)
    }

    @Test func theNextMirrorIsAsked() async throws {
        server.answer("/bad", with: .status(404))
        server.answer("/pack", with: .content(Self.content))
        let events = Events()
        let request = DownloadRequest(
            "http://127.0.0.1:1/refused",
            server.url("/bad"),
            server.url("/pack"),
            content: Self.content,
            events: events
        )
        try await withEngine { engine in
            let receipt = try await engine.download(request, to: part)
            #expect(receipt.url == server.url("/pack"))
            #expect(receipt.attempts == 3)
            let other = try PartialFile.open("other", in: folder.directory)
            let second = try await engine.download(request, to: other)
            #expect(second.attempts == 2)
        }
        #expect(
            events.all.contains(
                .mirrorFailed(
                    url: server.url("/bad"),
                    .refused(url: server.url("/bad"), status: 404)
                )
            )
        )
    }

    @Test func contentThatIsWrongComesFromAnotherMirror() async throws {
        let wrong = noise(Self.content.count, seed: 9)
        server.answer("/wrong", with: .content(wrong))
        server.answer("/pack", with: .content(Self.content))
        let events = Events()
        let request = DownloadRequest(
            server.url("/wrong"),
            server.url("/pack"),
            content: Self.content,
            events: events
        )
        let receipt = try await download(request, to: part)
        #expect(receipt.url == server.url("/pack"))
        #expect(receipt.bytesReceived == ByteCount(2 * Self.content.count))
        #expect(events.restarts == [.wrongDigest])
    }

    /// An intermediate cache would send the wrong content again.
    @Test func contentThatIsWrongIsNotTakenFromACacheAgain() async throws {
        let wrong = noise(Self.content.count, seed: 9)
        server.answer("/pack", with: .content(wrong), .content(Self.content))
        let request = DownloadRequest(server.url("/pack"), content: Self.content)
        try await download(request, to: part)
        #expect(fileContent(part.path) == Self.content)
        #expect(server.requests.map { $0["cache-control"] } == [nil, "no-cache"])
    }

    /// If a server limits the connections of a client, the refused request waits for the end of a running one.
    @Test(arguments: [429, 503])
    func aRefusedRequestWaitsForTheOthers(status: Int) async throws {
        let gate = Gate()
        server.answer("/first", with: Answer.content(Self.content).held(after: 1000, until: gate))
        server.answer("/second", with: .status(status), .content(Self.content))
        let (begun, waits) = (Events(), Events())
        let first = DownloadRequest(server.url("/first"), content: Self.content, events: begun)
        let second = DownloadRequest(server.url("/second"), content: Self.content, events: waits)
        let other = try PartialFile.open("other", in: folder.directory)
        try await withEngine { engine in
            async let one = engine.download(first, to: part)
            try await poll { !begun.offsets.isEmpty }
            async let two = engine.download(second, to: other)
            try await poll { waits.isWaitingForConnection || !waits.offsets.isEmpty }
            #expect(waits.isWaitingForConnection)
            #expect(server.requests(for: "/second").count == 1)
            gate.open()
            _ = try await (one, two)
        }
        #expect(fileContent(other.path) == Self.content)
    }

    /// If a server limits the connections of a client, only the transfers of the refused user are delayed.
    @Test func aRefusedRequestOfAUserDelaysNoOther() async throws {
        let gate = Gate()
        server.answer("/first", with: Answer.content(Self.content).held(after: 1000, until: gate))
        server.answer("/second", with: .status(429), .content(Self.content))
        server.answer("/third", with: .content(Self.content))
        let (begun, waits, events) = (Events(), Events(), Events())
        var first = DownloadRequest(server.url("/first"), content: Self.content, events: begun)
        var second = DownloadRequest(server.url("/second"), content: Self.content, events: waits)
        var third = DownloadRequest(server.url("/third"), content: Self.content, events: events)
        (first.user, second.user, third.user) = (1, 1, 2)
        let (one, two, three) = (first, second, third)
        let others = try ["other", "third"].map { try PartialFile.open($0, in: folder.directory) }
        try await withEngine { engine in
            async let slow = engine.download(one, to: part)
            try await poll { !begun.offsets.isEmpty }
            async let refused = engine.download(two, to: others[0])
            try await poll { waits.isWaitingForConnection }
            async let other = engine.download(three, to: others[1])
            try await poll { events.isWaitingForConnection || !events.offsets.isEmpty }
            #expect(!events.isWaitingForConnection)
            gate.open()
            _ = try await (slow, refused, other)
        }
        #expect(fileContent(others[1].path) == Self.content)
    }

    @Test func aDelayThatAHostAsksForHoldsForAllTransfers() async throws {
        server.answer("/first", with: .status(503).field("Retry-After", "3600"))
        server.answer("/second", with: .content(Self.content))
        let (refused, waits) = (Events(), Events())
        let first = DownloadRequest(server.url("/first"), content: Self.content, events: refused)
        let second = DownloadRequest(server.url("/second"), content: Self.content, events: waits)
        let part = part
        let other = try PartialFile.open("other", in: folder.directory)
        try await withEngine { engine in
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { _ = try? await engine.download(first, to: part) }
                defer { group.cancelAll() }
                try await poll { refused.isWaitingForServer }
                group.addTask { _ = try? await engine.download(second, to: other) }
                try await poll { waits.isWaitingForServer || !waits.offsets.isEmpty }
            }
        }
        #expect(waits.isWaitingForServer)
        #expect(server.requests(for: "/second").isEmpty)
    }

    @Test func aDelayAfterARedirectIsThatOfTheTarget() async throws {
        let target = server.url("/target", host: "localhost")
        server.answer("/first", with: .redirect(to: target))
        server.answer("/target", with: .status(503).field("Retry-After", "3600"))
        server.answer("/second", with: .content(Self.content))
        let (refused, other) = (Events(), Events())
        let first = DownloadRequest(server.url("/first"), content: Self.content, events: refused)
        let second = DownloadRequest(server.url("/second"), content: Self.content, events: other)
        let part = part
        let otherPart = try PartialFile.open("other", in: folder.directory)
        try await withEngine { engine in
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { _ = try? await engine.download(first, to: part) }
                defer { group.cancelAll() }
                try await poll { refused.isWaitingForServer }
                group.addTask { _ = try? await engine.download(second, to: otherPart) }
                try await poll { other.isWaitingForServer || !other.offsets.isEmpty }
            }
        }
        #expect(!other.isWaitingForServer)
    }

    @Test func twoMirrorsWithWrongContentHideNoOther() async throws {
        let wrong = noise(Self.content.count, seed: 9)
        for path in ["/a", "/b"] { server.answer(path, with: .content(wrong)) }
        server.answer("/pack", with: .content(Self.content))
        let request = DownloadRequest(
            server.url("/a"),
            server.url("/b"),
            server.url("/pack"),
            content: Self.content
        )
        let receipt = try await download(request, to: part)
        #expect(receipt.url == server.url("/pack"))
        #expect(server.requests.count == 3)
    }

    @Test func contentThatIsWrongTwiceIsAnError() async throws {
        let wrong = noise(Self.content.count, seed: 9)
        server.answer("/pack", with: .content(wrong))
        let request = DownloadRequest(server.url("/pack"), content: Self.content)
        let error = await failure(of: request, to: part)
        let (expected, found) = (Digest(of: Self.content), Digest(of: wrong))
        let mismatch = DigestMismatch(expected: expected, found: found)
        #expect(error == .wrongDigest(url: server.url("/pack"), mismatch))
        #expect("\(try #require(error))".hasSuffix("digest \(expected), found \(found)"))
        #expect(server.counts(for: "/pack").requests == 2)
        #expect(part.length == .zero)
    }

    @Test func aStalledTransferIsTriedAgain() async throws {
        server.answer(
            "/pack",
            with: .content(Self.content).stalled(after: 100_000),
            .content(Self.content)
        )
        var configuration = TransferConfiguration.impatient
        configuration.stall = StallRule(minimum: .kibibytes(1), window: .milliseconds(250))
        // On a busy machine, later attempts may stall, too.
        configuration.retry.maximumAttempts = 200
        let request = DownloadRequest(server.url("/pack"), content: Self.content)
        let receipt = try await download(request, to: part, configuration)
        #expect(receipt.attempts >= 2)
        #expect(receipt.bytesReceived == ByteCount(Self.content.count))
    }

    @Test func aSilentServerIsNotWaitedForForever() async throws {
        let gate = Gate()
        defer { gate.open() }
        server.answer("/pack", with: .content(Self.content).waiting(for: gate))
        var configuration = TransferConfiguration.single
        configuration.stall = StallRule(minimum: .kibibytes(1), window: .milliseconds(250))
        let request = DownloadRequest(server.url("/pack"), content: Self.content)
        let error = await failure(of: request, to: part, configuration)
        let detail = "the transfer stalled for 0.25 seconds"
        #expect(error == .unreachable(url: server.url("/pack"), .timeout, detail: detail))
    }

    /// At a byte a second, the first buffer would use up the bandwidth of all transfers for hours.
    @Test func theBandwidthIsShared() async throws {
        let content = noise(200_000)
        server.answer("/pack", with: .content(content))
        var configuration = TransferConfiguration.impatient
        configuration.bandwidth = ByteCount(1)
        let parts = try ["a", "b", "c"].map { try PartialFile.open($0, in: folder.directory) }
        let received = try await withEngine(configuration) { engine in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for part in parts {
                    let request = DownloadRequest(server.url("/pack"), content: content)
                    group.addTask { _ = try? await engine.download(request, to: part) }
                }
                defer { group.cancelAll() }
                try await poll("no requests") { server.counts(for: "/pack").requests == 3 }
                return try await pollUntilUnchanged {
                    parts.reduce(ByteCount.zero) { $0 + $1.length }
                }
            }
        }
        #expect(received > .zero)
        #expect(received <= .kibibytes(16))
    }

    @Test func transfersContinueAsTheBandwidthAllows() async throws {
        let content = noise(100_000)
        server.answer("/pack", with: .content(content))
        var configuration = TransferConfiguration.impatient
        configuration.bandwidth = ByteCount(400_000)
        let start = ContinuousClock.now
        let request = DownloadRequest(server.url("/pack"), content: content)
        try await download(request, to: part, configuration)
        // An eighth of a second's bandwidth and one buffer may arrive at once.
        #expect(ContinuousClock.now - start >= .milliseconds(60))
    }

    @Test(arguments: [false, true])
    func aBodyThatNeverEndsIsCutOff(isChunked: Bool) async throws {
        let answer = Answer.content(Self.content).omitting("Content-Length").with {
            $0.isEndless = true
            $0.isChunked = isChunked
        }
        server.answer("/pack", with: answer)
        let request = DownloadRequest(server.url("/pack"), content: Self.content)
        let error = await failure(of: request, to: part)
        #expect(
            error
                == .wrongSize(
                    url: server.url("/pack"),
                    expected: ByteCount(Self.content.count),
                    actual: nil
                )
        )
        #expect(part.length <= ByteCount(Self.content.count))
    }

    @Test func aShortBodyIsNeverASuccess() async throws {
        let short = Answer.content(Array(Self.content.dropLast())).omitting("Content-Length")
            .with { $0.closes = true }
        server.answer("/pack", with: short)
        let request = DownloadRequest(server.url("/pack"), content: Self.content)
        let error = await failure(of: request, to: part, .single)
        let detail = "the content ended after 299999 of 300000 bytes"
        #expect(error == .unreachable(url: server.url("/pack"), detail: detail))
    }

    @Test func anEncodedBodyIsRefused() async throws {
        server.answer("/pack", with: .content(Self.content).field("Content-Encoding", "gzip"))
        let request = DownloadRequest(server.url("/pack"), content: Self.content)
        let error = await failure(of: request, to: part)
        #expect(
            error == .unacceptable(url: server.url("/pack"), .contentEncoding("gzip"))
        )
    }

    @Test func cancellingLeavesWhatCanBeResumed() async throws {
        let content = noise(1 << 20)
        // The bytes are reported even if they are fewer than a running transfer reports at once.
        let count = 500_000
        server.answer(
            "/pack",
            with: .content(content).stalled(after: count),
            .content(content)
        )
        var request = DownloadRequest(server.url("/pack"), content: content)
        let (arrived, hasArrived) = AsyncStream.makeStream(of: Void.self)
        request.report = { event in
            if event == .received(ByteCount(count)) { hasArrived.finish() }
        }
        let error = try await cancelled(request, after: arrived)
        #expect(error == .cancelled)
        let again = try PartialFile.open("pack", in: folder.directory, boot: BootID("another"))
        #expect(again.length == ByteCount(count))
        let receipt = try await download(
            DownloadRequest(server.url("/pack"), content: content),
            to: again
        )
        #expect(receipt.bytesReceived == ByteCount(content.count - count))
    }

    /// A transfer that does not end reports which bytes are durable so far.
    @Test(.alone) func receivedBytesBecomeDurableDuringTheTransfer() async throws {
        let content = noise(1 << 20)
        server.answer("/pack", with: .content(content).stalled(after: 1 << 19))
        var configuration = TransferConfiguration.impatient
        configuration.stall.window = .milliseconds(100)
        configuration.stall.minimum = .zero
        configuration.checkpoint = CheckpointRule(size: .kibibytes(64), interval: .zero)
        let request = DownloadRequest(server.url("/pack"), content: content)
        let part = part
        let durable = try await withEngine(configuration) { engine in
            await withTaskGroup(of: Void.self) { group in
                group.addTask { _ = try? await engine.download(request, to: part) }
                let deadline = ContinuousClock.now + .seconds(120)
                while record()?.durable != 1 << 19, ContinuousClock.now < deadline {
                    try? await Task.sleep(for: .milliseconds(5))
                }
                let durable = record()
                group.cancelAll()
                return durable
            }
        }
        #expect(durable?.durable == 1 << 19)
        #expect(durable?.boot == BootID.current.text)
        #expect(durable?.validator == Answer.content(content).entityTag.map { .entityTag($0) })
    }

    /// A checkpoint waits for the disk until the content is complete and was moved away with its record; it must not create a new
    /// record.
    @Test func aLateCheckpointLeavesNoRecord() async throws {
        let content = noise(1 << 20)
        server.answer("/pack", with: .content(content).slowed(to: 1 << 20))
        var configuration = TransferConfiguration.impatient
        configuration.checkpoint = CheckpointRule(size: .kibibytes(64), interval: .zero)
        let request = DownloadRequest(server.url("/pack"), content: content)
        try await withEngine(configuration) { engine in
            engine.storage.suspend()
            do {
                defer { engine.storage.resume() }
                _ = try await engine.download(request, to: part)
                try PartialFile.open("pack", in: folder.directory).remove()
            }
            await withCheckedContinuation { done in engine.storage.async { done.resume() } }
        }
        #expect(try folder.directory.entries() == [])
    }

    /// The record of the partial file on disk.
    private func record() -> PartialFileRecord? {
        guard let file = try? folder.directory.file(reading: "pack.state") else { return nil }
        return (try? file.readAll(limit: 9999)).flatMap { PartialFileRecord.decode($0) }
    }

    @Test func aRecordIsThereBeforeTheFirstByte() async throws {
        server.answer("/pack", with: .content(Self.content))
        var request = DownloadRequest(server.url("/pack"), content: Self.content)
        let records = Events()
        let folder = folder
        request.report = { event in
            guard case .accepted = event else { return }
            let state = (try? folder.directory.status("pack.state")).flatMap { $0 }
            if state != nil { records.append(event) }
        }
        try await download(request, to: part)
        #expect(records.offsets == [0])
    }

    @Test func smallContentNeedsNoRecord() async throws {
        let content = noise(1 << 18)
        server.answer("/pack", with: .content(content))
        try await download(DownloadRequest(server.url("/pack"), content: content), to: part)
        #expect(try folder.directory.entries().map(\.path.string) == ["pack.part.1"])
    }

    /// The error of a download that is cancelled once `moment` ends.
    private func cancelled(
        _ request: DownloadRequest,
        after moment: AsyncStream<Void>
    ) async throws -> TransferError? {
        let part = part
        return try await withEngine { engine in
            await withTaskGroup(of: TransferError?.self) { group in
                group.addTask {
                    do throws(TransferError) {
                        _ = try await engine.download(request, to: part)
                        return nil
                    } catch {
                        return error
                    }
                }
                for await _ in moment {}
                group.cancelAll()
                return await group.next() ?? nil
            }
        }
    }

    @Test func aFileThatCannotBeWrittenEndsTheDownload() async throws {
        try folder.directory.createDirectory("pack.part.1")
        server.answer("/pack", with: .content(Self.content))
        let request = DownloadRequest(server.url("/pack"), content: Self.content)
        let error = await failure(of: request, to: part)
        let path = folder.directory.path.appending("pack.part.1")
        #expect(error == .storage(FileError("open", path: path, errno: .isDirectory)))
        #expect(server.requests.count == 1)
    }

    @Test(arguments: [(28, true), (122, true), (5, false), (30, false)])
    func onlyAFullDiskIsOutOfSpace(errno: CInt, isFull: Bool) {
        let failed = FileError("write", path: "/x", errno: Errno(rawValue: errno))
        #expect(TransferError(failed) == (isFull ? .outOfSpace("/x") : .storage(failed)))
    }

    @Test func hundredsOfDownloadsShareFewConnections() async throws {
        let content = noise(4096)
        var configuration = TransferConfiguration.impatient
        configuration.connectionsPerHost = 4
        server.answer("/pack", with: .content(content))
        let events = Events()
        try await withEngine(configuration) { engine in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for index in 0..<300 {
                    let name = try #require(FilePath.Component("part\(index)"))
                    let part = try PartialFile.open(name, in: folder.directory)
                    let request = DownloadRequest(
                        server.url("/pack"),
                        content: content,
                        events: events
                    )
                    group.addTask {
                        let receipt = try await engine.download(request, to: part)
                        #expect(receipt.bytesReceived == ByteCount(4096))
                        try part.remove()
                    }
                }
                try await group.waitForAll()
            }
        }
        #expect(server.connectionCount <= 4)
        #expect(server.peakConcurrency <= 4)
        #expect(events.all.contains(.waiting(.connection, nil)))
        #expect(try folder.directory.entries().isEmpty)
    }

    @Test func aLocalFileIsCopied() async throws {
        try folder.directory.write(Self.content, to: "source", durably: false)
        let url = "file://\(folder.directory.path)/source"
        let receipt = try await download(DownloadRequest(url, content: Self.content), to: part)
        #expect(receipt.url == url)
        #expect(fileContent(part.path) == Self.content)
    }

    /// A local file has no host.
    @Test func allowedDomainsRestrictNoLocalFile() async throws {
        try folder.directory.write(Self.content, to: "source", durably: false)
        let url = "file://\(folder.directory.path)/source"
        var request = DownloadRequest(url, content: Self.content)
        request.allowedDomains = AllowedDomains(["example.com"])
        try await download(request, to: part)
        #expect(fileContent(part.path) == Self.content)
    }

    /// Requests to addresses are sent at once, and those to names wait no longer than a lookup may take.
    @Test func lookupsThatWereLeftBehindDelayRequestsToNamesForALimitedTime() async throws {
        server.answer("/pack", with: .content(Self.content))
        var configuration = TransferConfiguration.single
        try await withEngine(configuration) { engine in
            await engine.leaveLookupsBehind()
            let known = DownloadRequest(server.url("/pack"), content: Self.content)
            let receipt = try await engine.download(known, to: part)
            #expect(receipt.attempts == 1)
        }
        configuration.connectTimeout = .seconds(2)
        try await withEngine(configuration) { engine in
            await engine.leaveLookupsBehind()
            let named = DownloadRequest("http://example.invalid/pack", content: Self.content)
            let other = try PartialFile.open("other", in: folder.directory)
            let error = await #expect(throws: TransferError.self) {
                try await engine.download(named, to: other)
            }
            let detail =
                "its name was not looked up within 2 seconds, because many earlier lookups did not end"
            let url = "http://example.invalid/pack"
            #expect(error == .unreachable(url: url, .nameLookup, detail: detail))
        }
    }

    @Test func aLocalFileThatIsMissingIsAnError() async throws {
        let url = "file://\(folder.directory.path)/missing"
        let error = await failure(of: DownloadRequest(url, content: [1]), to: part)
        let path = folder.directory.path.appending("missing")
        let missing = FileError("open", path: path, errno: .noSuchFileOrDirectory)
        #expect(error == .unacceptable(url: url, .file(missing)))
    }

    @Test(arguments: ["", "pack", "/pack", "ftp://h/p", "http://", "gopher://x"])
    func otherURLsAreRefused(url: String) async throws {
        let error = await failure(of: DownloadRequest(url, content: [1]), to: part)
        #expect(error == .unacceptable(url: url, .url))
    }
}

extension TransferEngine {
    /// Leaves as many lookups behind as requests of the process's own user may.
    fileprivate func leaveLookupsBehind() {
        for _ in 0..<AbandonedLookups.limitPerUser { allocator.lookups.add(of: nil, at: .now) }
    }
}

extension Events {
    /// `true` if the download waits for a connection, or has waited for one.
    fileprivate var isWaitingForConnection: Bool {
        all.contains { if case .waiting(.connection, _) = $0 { true } else { false } }
    }

    /// `true` if the download waits for a delay that a server requested.
    fileprivate var isWaitingForServer: Bool {
        all.contains { if case .waiting(.server, _) = $0 { true } else { false } }
    }
}
