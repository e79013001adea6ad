import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory, .daemon, .server)
struct BehaviourTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current

    init() async throws {
        daemon = try .required()
        try daemon.configure(#"{"retryBase": 0.05, "settlingTime": 0, "relaunchDelay": 1}"#)
        try await daemon.start()
        try await daemon.makeSession()
    }

    /// Waits until a task has received `count` bytes, and more are in transit.
    private func wait(for count: Int, of task: Int64) async throws {
        try await poll("the bytes do not come") {
            try await daemon.client.task(task).bytesReceived >= ByteCount(count)
        }
    }

    /// Starts a download, which its client suspends after 300,000 bytes and resumes, and returns its number.
    private func downloadWithPause(_ path: String) async throws -> Int64 {
        let id = try await daemon.download(server.url(path))
        try await wait(for: 300_000, of: id)
        try await daemon.change(id, to: .suspended)
        try await daemon.wait(for: [.pausedByClient], of: id)
        #expect(try await daemon.client.task(id).state == .suspended)
        try await daemon.change(id, to: .running)
        return id
    }

    private func resumption(_ path: String) -> (start: Int, tag: String?)? {
        let heads = server.requests(for: path)
        guard heads.count == 2, let start = heads[1].rangeStart else { return nil }
        return (start, heads[1]["if-range"])
    }

    @Test func aSuspendedDownloadResumesAtItsOffset() async throws {
        let body = noise(3 << 20)
        let answer = Answer.content(body)
        server.answer("/a", with: answer.stalled(after: 2 << 20), answer)
        let id = try await downloadWithPause("/a")
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(try bytes(of: FilePath(try #require(events[0].location))) == body)
        let (start, tag) = try #require(resumption("/a"))
        #expect(start >= 300_000)
        #expect(tag == answer.entityTag)
    }

    @Test func noRedirectLeavesTheAllowedDomains() async throws {
        let elsewhere = server.url("/b", host: "localhost")
        server.answer("/a", with: .redirect(to: elsewhere))
        server.answer("/b", with: .content(noise(1000)))
        let id = try await daemon.download(server.url("/a")) { $0.allowedDomains = ["127.0.0.1"] }
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 failed of \(id)"])
        #expect(events.first?.failure?.reason.contains("none of the allowed domains") == true)
        #expect(server.requests(for: "/b").isEmpty)
        #expect(try daemon.names(in: "parts") == [])
    }

    @Test(arguments: [
        ["example.org"], [""], Array(repeating: "127.0.0.1", count: 257),
        [String(repeating: "a", count: 256)], [],
    ])
    func domainsThatCannotBeMeantAreRefused(domains: [String]) async throws {
        let error = await #expect(throws: ControlError.self) {
            try await daemon.download(server.url("/a")) { $0.allowedDomains = domains }
        }
        guard case .refused(let refusal) = error else {
            Issue.record("expected a refusal, found \(String(describing: error))")
            return
        }
        #expect(refusal.code == .invalid)
        #expect(refusal.message.contains("'allowedDomains'"))
    }

    @Test func aPauseByAPersonOutlastsChangesOfTheClient() async throws {
        server.answer("/a", with: .content(noise(1000)))
        let id = try await daemon.download(server.url("/a")) { $0.isSuspended = true }
        for (state, reasons) in [
            (.paused, [.pausedByClient, .pausedByUser]), (.running, [.pausedByUser]),
        ] as [(TransferChange.State, [PendingReason.Kind])] {
            try await daemon.change(id, to: state)
            try await daemon.wait(for: reasons, of: id)
        }
        // A restart of the daemon does not change that.
        try await daemon.kill()
        try await daemon.start()
        try await daemon.wait(for: [.pausedByUser], of: id)
        #expect(server.requests.isEmpty)
        try await daemon.change(id, to: .unpaused)
        #expect(try await daemon.outcomes().map(\.kind) == [.completed])
    }

    @Test(arguments: [false, true])
    func aTokenContinuesFromTheBytesOfACancelledTask(isAcknowledged: Bool) async throws {
        let body = noise(3 << 20)
        let answer = Answer.content(body)
        server.answer("/a", with: answer.stalled(after: 2 << 20), answer)
        let id = try await daemon.download(server.url("/a"), token: "one")
        try await wait(for: 300_000, of: id)
        var change = TransferChange()
        change.state = .cancelled
        change.producesResumeToken = true
        #expect(try await daemon.client.change(id, by: change).state == .cancelled)
        let cancelled = try await daemon.outcomes()
        #expect(cancelled.map(\.gist) == ["1 cancelled of \(id)"])
        let token = try #require(cancelled[0].resumeToken)
        if isAcknowledged {
            let first = Acknowledgement(sequence: 1)
            try await daemon.client.acknowledge(first, in: "s")
        }
        let next = try await daemon.download(server.url("/a"), token: "two") {
            $0.resumeToken = token
        }
        let events = try await daemon.outcomes(after: 1)
        #expect(events.map(\.gist) == ["2 completed of \(next)"])
        #expect(try bytes(of: FilePath(try #require(events[0].location))) == body)
        let (start, tag) = try #require(resumption("/a"))
        #expect(start > 0)
        #expect(tag == answer.entityTag)
        let refusal = ControlRefusal(
            .invalid,
            message: "the resume token was used already, or has expired"
        )
        await #expect(throws: ControlError.refused(refusal)) {
            try await daemon.download(server.url("/a"), token: "three") { $0.resumeToken = token }
        }
        // The request whose response was lost is sent again unchanged.
        let again = try await daemon.download(server.url("/a"), token: "two") {
            $0.resumeToken = token
        }
        #expect(again == next)
    }

    @Test func bytesThatAnEarlierDaemonHasReceivedAreShown() async throws {
        server.answer("/a", with: Answer.content(noise(3 << 20)).stalled(after: 1 << 20))
        let id = try await daemon.download(server.url("/a"))
        try await wait(for: 1 << 20, of: id)
        try await daemon.change(id, to: .paused)
        try await daemon.wait(for: [.pausedByUser], of: id)
        try await daemon.kill()
        try await daemon.start()
        let received = ByteCount(1 << 20)
        #expect(try await daemon.client.task(id).bytesReceived == received)
        #expect(try await daemon.change(id, to: .cancelled).bytesReceived == received)
        let event = try #require(try await daemon.outcomes().first)
        #expect(event.kind == .cancelled && event.bytesReceived == received, "\(event)")
    }

    /// Cancels a download of '/a' once it has received 1 MiB, and returns its resume token.
    private func resumeToken() async throws -> String {
        let id = try await daemon.download(server.url("/a"), token: "one")
        try await wait(for: 1 << 20, of: id)
        var change = TransferChange()
        change.state = .cancelled
        change.producesResumeToken = true
        try await daemon.client.change(id, by: change)
        return try #require(try await daemon.outcomes()[0].resumeToken)
    }

    @Test func theBytesOfATokenAreShownBeforeTheFirstAttempt() async throws {
        server.answer("/a", with: Answer.content(noise(3 << 20)).stalled(after: 1 << 20))
        let token = try await resumeToken()
        let next = try await daemon.download(server.url("/a"), token: "two") {
            ($0.resumeToken, $0.isSuspended) = (token, true)
        }
        let task = try await daemon.client.task(next)
        #expect(task.state == .suspended && task.bytesReceived == ByteCount(1 << 20))
        #expect(server.requests(for: "/a").count == 1)
    }

    @Test func theBytesOfATokenAreShownBeforeTheResponse() async throws {
        let gate = Gate()
        let answer = Answer.content(noise(3 << 20))
        server.answer("/a", with: answer.stalled(after: 1 << 20), answer.waiting(for: gate))
        let token = try await resumeToken()
        let watched = try await daemon.client.watch()
        defer { watched.close() }
        let next = try await daemon.download(server.url("/a"), token: "two") {
            $0.resumeToken = token
        }
        try await poll("no request is sent") { server.requests(for: "/a").count == 2 }
        let received = ByteCount(1 << 20)
        #expect(try await daemon.client.task(next).bytesReceived == received)
        gate.open()
        let events = try await watched.take { $0.task == next && $0.response != nil }
        let counts = events.filter { $0.task == next }.compactMap(\.bytesReceived)
        #expect(counts.allSatisfy { $0 >= received }, "\(counts)")
    }

    /// The last progress event of a transfer precedes its final event.
    @Test func noEventsFollowTheEndOfATask() async throws {
        server.answer("/a", with: .content(noise(10)))
        let stream = try await daemon.attach()
        defer { stream.close() }
        let count = 300
        async let creation: Void = {
            for number in 0..<count {
                try await daemon.download(server.url("/a"), token: "\(number)")
            }
        }()
        var ended: Set<Int64> = []
        for try await event in stream {
            guard let task = event.task else { continue }
            #expect(!ended.contains(task), "\(event.kind) of \(task) after its end")
            if event.kind == .completed { ended.insert(task) }
            if ended.count == count { break }
        }
        #expect(ended.count == count)
        try await creation
    }

    /// The head was received while no client was attached; no later byte causes a progress event.
    @Test func aClientThatAttachesReceivesMissedEvents() async throws {
        let gate = Gate()
        server.answer("/a", with: Answer.content(noise(4 << 20)).held(after: 1 << 20, until: gate))
        let running = try await daemon.download(server.url("/a"))
        let waiting = try await daemon.download(server.url("/b")) {
            $0.earliestBegin = Date.now + 3600
        }
        try await wait(for: 1 << 20, of: running)
        let events = try await daemon.events {
            $0.task == running && $0.response != nil
        }
        let head = try #require(events.last)
        #expect(head.kind == .progress)
        #expect(head.response?.status == 200)
        #expect(head.bytesReceived == ByteCount(1 << 20))
        #expect(head.bytesExpected == ByteCount(4 << 20))
        let later = try await daemon.events { $0.task == waiting }
        #expect(later.last?.state == .waiting)
        #expect(later.last?.pendingReasons?.map(\.kind) == [.earliestBegin])
        gate.open()
    }

    @Test func aClientThatAttachesLearnsWhyEachOfManyTasksWaits() async throws {
        let ids = try await daemon.downloads(600, of: server.url("/a")) {
            $0.earliestBegin = .now + 3600
        }
        let last = try #require(ids.last)
        let events = try await daemon.events { $0.task == last }
        let waiting = events.filter { $0.pendingReasons?.map(\.kind) == [.earliestBegin] }
        #expect(waiting.compactMap(\.task) == ids)
    }

    @Test func eachClientThatAttachesLearnsWhereADownloadResumed() async throws {
        let gate = Gate()
        defer { gate.open() }
        let answer = Answer.content(noise(4 << 20))
        let resumed = answer.held(after: 1000, until: gate)
        server.answer("/a", with: answer.stalled(after: 2 << 20), resumed)
        _ = try await downloadWithPause("/a")
        let first = try await daemon.events { $0.kind == .resumed }
        let second = try await daemon.events { $0.kind == .resumed }
        let (start, _) = try #require(resumption("/a"))
        #expect(first.last?.offset == ByteCount(Int64(start)))
        #expect(first.last == second.last)
    }

    @Test func aClientLearnsWhyItsTaskWaitsAndThatTheWaitIsOver() async throws {
        server.answer("/a", with: .content(noise(1000)))
        let id = try await daemon.download(server.url("/a")) { $0.earliestBegin = .now + 3600 }
        let stream = try await daemon.attach()
        defer { stream.close() }
        _ = try await stream.take { $0.pendingReasons?.map(\.kind) == [.earliestBegin] }
        try await daemon.change(id, to: .paused)
        _ = try await stream.take {
            $0.pendingReasons?.map(\.kind) == [.pausedByUser, .earliestBegin]
        }
        try await daemon.change(id, to: .unpaused)
        _ = try await stream.take { $0.pendingReasons?.map(\.kind) == [.earliestBegin] }
        var change = TransferChange()
        change.earliestBegin = .now
        try await daemon.client.change(id, by: change)
        let begun = try await stream.take { $0.kind == .changed && $0.state == .running }
        #expect(begun.last?.pendingReasons == [])
    }

    @Test func aClientLearnsWhatItsTaskWaitsForAfterItsTime() async throws {
        let gate = Gate()
        defer { gate.open() }
        server.answer("/a", with: Answer.content(noise(4 << 20)).held(after: 1 << 20, until: gate))
        try await daemon.makeSession("one") { $0.maximumConnectionsPerHost = 1 }
        let running = try await daemon.download(server.url("/a"), in: "one")
        try await daemon.wait(for: .running, of: running)
        let waiting = try await daemon.download(server.url("/b"), in: "one") {
            $0.earliestBegin = .now + 2
        }
        let reasons = [PendingReason(.slot, resource: .sessionConnections)]
        let events = try await daemon.events(of: "one") {
            $0.task == waiting && $0.pendingReasons == reasons
        }
        #expect(events.last?.state == .waiting)
    }

    @Test func aTokenIsOfItsURL() async throws {
        server.answer("/a", with: .content(noise(3 << 20)).stalled(after: 2 << 20))
        let id = try await daemon.download(server.url("/a"), token: "one")
        try await wait(for: 100_000, of: id)
        var change = TransferChange()
        change.state = .cancelled
        change.producesResumeToken = true
        try await daemon.client.change(id, by: change)
        let token = try #require(try await daemon.outcomes()[0].resumeToken)
        let refusal = ControlRefusal(.invalid, message: "the resume token belongs to another URL")
        await #expect(throws: ControlError.refused(refusal)) {
            try await daemon.download(server.url("/b"), token: "two") { $0.resumeToken = token }
        }
    }

    @Test func aTaskDoesNotBeginBeforeItsTime() async throws {
        server.answer("/a", with: .content(noise(1000)))
        let far = Date.now + 3600
        let id = try await daemon.download(server.url("/a")) { $0.earliestBegin = far }
        let task = try await daemon.client.task(id)
        #expect(task.state == .waiting)
        #expect(task.pendingReasons.map(\.kind) == [.earliestBegin])
        #expect(abs(try #require(task.pendingReasons.first?.until).timeIntervalSince(far)) < 0.01)
        #expect(server.requests.isEmpty)
        let begin = Date.now + 2
        var change = TransferChange()
        change.earliestBegin = begin
        try await daemon.client.change(id, by: change)
        let events = try await daemon.outcomes()
        #expect(events.map(\.kind) == [.completed])
        let started = try #require(events.first?.metrics?.started)
        #expect((-0.01..<60).contains(started.timeIntervalSince(begin)))
    }

    @Test func tasksRunInTheOrderOfTheirPriorities() async throws {
        try daemon.configure(#"{"connections": 1}"#)
        try await daemon.kill(SIGTERM)
        try await daemon.start()
        var requests: [TransferRequest] = []
        for (name, priority) in [("a", 0.5), ("b", 0.501), ("c", 0.9), ("d", 0.5005)] {
            server.answer("/\(name)", with: .content(noise(1000)))
            var request = TransferRequest(
                token: name,
                kind: .download,
                url: server.url("/\(name)")
            )
            request.priority = priority
            requests.append(request)
        }
        let ids = try await daemon.client.createTasks(requests, in: "s")
        let events = try await daemon.outcomes()
        #expect(events.map(\.task) == [ids[2], ids[1], ids[3], ids[0]])
        #expect(server.requests.map(\.target) == ["/c", "/b", "/d", "/a"])
    }

    @Test func contentThatTwoTasksWantIsFetchedOnce() async throws {
        let body = noise(1 << 20)
        server.answer("/a", with: .content(body))
        server.answer("/b", with: .content(body))
        var requests: [TransferRequest] = []
        for (token, path) in [("1", "/a"), ("2", "/b"), ("3", "/a")] {
            var request = TransferRequest(token: token, kind: .download, url: server.url(path))
            request.sha256 = sha256(body)
            requests.append(request)
        }
        let ids = try await daemon.client.createTasks(requests, in: "s")
        let events = try await daemon.outcomes()
        #expect(Set(events.compactMap(\.task)) == Set(ids))
        #expect(events.compactMap(\.sequence) == [1, 2, 3])
        let paths = try events.map { FilePath(try #require($0.location)) }
        #expect(Set(paths).count == 3)
        for path in paths { #expect(try bytes(of: path) == body) }
        #expect(server.requests.map(\.target) == ["/a"])
    }

    @Test func aDownloadDoesNotWaitForASuspendedOneOfTheSameContent() async throws {
        let body = noise(1000)
        server.answer("/a", with: .content(body))
        let held = try await daemon.download(server.url("/a"), token: "held") {
            $0.sha256 = sha256(body)
            $0.isSuspended = true
        }
        let id = try await daemon.download(server.url("/a"), token: "free") {
            $0.sha256 = sha256(body)
        }
        try await daemon.wait(for: .completed, of: id)
        #expect(try await daemon.client.task(held).state == .suspended)
    }

    @Test func aTaskThatIsHeldIsNotEndedByOneThatFetchesTheSame() async throws {
        let body = noise(1 << 20)
        let gate = Gate()
        server.answer("/a", with: Answer.content(body).held(after: 1 << 19, until: gate))
        let id = try await daemon.download(server.url("/a"), token: "free") {
            $0.sha256 = sha256(body)
        }
        let held = try await daemon.download(server.url("/a"), token: "held") {
            $0.sha256 = sha256(body)
            $0.isSuspended = true
        }
        gate.open()
        try await daemon.wait(for: .completed, of: id)
        #expect(try await daemon.client.task(held).state == .suspended)
        try await daemon.change(held, to: .running)
        #expect(try await daemon.outcomes().map(\.task) == [id, held])
    }
}
