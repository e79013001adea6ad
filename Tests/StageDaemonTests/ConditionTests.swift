import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageTesting
import SystemPackage
import Testing

@Suite(.alone, .directory, .daemon, .server, .mockBus)
struct ConditionTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current
    private let bus: MockBus
    private let body = noise(3 << 20)

    init() async throws {
        daemon = try .required()
        bus = try .required()
        try bus.start(.networkManager)
        try bus.set("Connectivity", of: .networkManager, to: .number(4))
        try bus.set("Metered", of: .networkManager, to: .number(2))
        try daemon.configure(
            #"{"settlingTime": 0, "discretionaryWindow": 0, "busAddress": "\#(bus.address)"}"#
        )
        try await daemon.start()
        try await daemon.makeSession()
        let answer = Answer.content(body)
        server.answer("/a", with: answer.stalled(after: 1 << 20), answer)
    }

    /// Starts a transfer; the condition becomes unsatisfied midway, and satisfied again.
    private func interrupt(
        _ id: Int64,
        reasons: [PendingReason.Kind],
        lose: () throws -> Void,
        regain: () throws -> Void
    ) async throws {
        try await poll("nothing comes") {
            try await daemon.client.task(id).bytesReceived > ByteCount(300_000)
        }
        try lose()
        try await daemon.wait(for: reasons, of: id)
        let kept = try await daemon.client.task(id)
        #expect(kept.state == .waiting)
        // The server still sends nothing: without the interruption, the attempt would fail after a minute.
        #expect(kept.lastProblem == nil)
        #expect(kept.bytesReceived >= ByteCount(300_000))
        #expect(server.requests(for: "/a").count == 1)
        try regain()
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(try bytes(of: FilePath(try #require(events[0].location))) == body)
        let heads = server.requests(for: "/a")
        #expect(heads.count == 2)
        #expect(try #require(heads[1].rangeStart) >= 300_000)
    }

    @Test func aMeteredNetworkStopsTransfersWithoutExpensiveNetworkAccess() async throws {
        let id = try await daemon.download(server.url("/a")) {
            $0.allowsExpensiveNetworkAccess = false
        }
        server.answer("/b", with: Answer.content(noise(100)))
        try await interrupt(id, reasons: [.metered]) {
            try bus.set("Metered", of: .networkManager, to: .number(1))
        } regain: {
            try bus.set("Metered", of: .networkManager, to: .number(2))
        }
    }

    @Test(
        arguments: [
            ("Connectivity", 1, "there is no network"),
            ("Connectivity", 2, "the network requires a login"),
            ("Metered", 1, "the network is metered"),
        ] as [(String, UInt32, String)]
    )
    func aTaskThatDoesNotWaitFails(property: String, value: UInt32, reason: String) async throws {
        let id = try await daemon.download(server.url("/a")) {
            $0.allowsExpensiveNetworkAccess = false
            $0.failsWithoutRetry = true
        }
        let held = try await daemon.download(server.url("/b")) {
            $0.allowsExpensiveNetworkAccess = false
            $0.failsWithoutRetry = true
            $0.isSuspended = true
        }
        try await poll("nothing comes") {
            try await daemon.client.task(id).bytesReceived > ByteCount(300_000)
        }
        try bus.set(property, of: .networkManager, to: .number(value))
        let events = try await daemon.events { $0.task == id && $0.kind == .failed }
        let failure = try #require(events.last?.failure)
        #expect(failure.kind == .unreachable && failure.reason == reason)
        #expect(failure.resumeToken != nil)
        // The other one fails only when it would begin.
        #expect(try await daemon.client.task(held).state == .suspended)
        try await daemon.change(held, to: .running)
        try await daemon.wait(for: .failed, of: held)
        #expect(server.requests(for: "/b").isEmpty)
    }

    @Test func tasksThatAllowExpensiveNetworksRunOnMeteredOnes() async throws {
        try bus.set("Metered", of: .networkManager, to: .number(1))
        try await poll("it is not seen") {
            try await daemon.client.status().conditions["metered"] == "yes"
        }
        let held = try await daemon.download(server.url("/b")) {
            $0.allowsExpensiveNetworkAccess = false
        }
        server.answer("/a", with: .content(body))
        let id = try await daemon.download(server.url("/a"))
        try await daemon.wait(for: .completed, of: id)
        #expect(try await daemon.client.task(held).pendingReasons.map(\.kind) == [.metered])
        #expect(server.requests(for: "/b").isEmpty)
    }

    /// The client sends nothing after the creation, as one that is killed.
    @Test(arguments: [false, true])
    func aTaskThatIsCreatedPromotedWaitsForNoConditionAndNoDate(restarts: Bool) async throws {
        try bus.set("Metered", of: .networkManager, to: .number(1))
        try await poll("it is not seen") {
            try await daemon.client.status().conditions["metered"] == "yes"
        }
        try await daemon.makeSession("d") { $0.isDiscretionary = true }
        server.answer("/b", with: .content([1]))
        let id = try await daemon.download(server.url("/b"), in: "d") {
            $0.isPromoted = true
            $0.failsWithoutRetry = true
            $0.earliestBegin = .now + 86_400
            $0.isSuspended = restarts
        }
        if restarts {
            try await daemon.kill()
            try await daemon.start()
            let task = try await daemon.client.task(id)
            #expect(task.request.isPromoted == true)
            #expect(task.pendingReasons.map(\.kind) == [.pausedByClient])
            try await daemon.change(id, to: .running)
        }
        try await daemon.wait(for: .completed, of: id)
    }

    /// The tasks of another session precede its own in the daemon's order.
    @Test func aClientReceivesConditionsBesideAThousandTasksOfOthers() async throws {
        try await daemon.makeSession("others")
        try await daemon.downloads(1000, of: server.url("/b"), in: "others") {
            $0.isSuspended = true
        }
        let id = try await daemon.download(server.url("/a")) {
            $0.earliestBegin = .now + 3600
            $0.allowsExpensiveNetworkAccess = false
        }
        let stream = try await daemon.attach()
        defer { stream.close() }
        _ = try await stream.take { $0.task == id }
        try bus.set("Metered", of: .networkManager, to: .number(1))
        let events = try await stream.take { event in
            event.pendingReasons?.contains { $0.kind == .metered } ?? false
        }
        #expect(events.last?.task == id)
    }

    /// In the daemon's order, the tasks of another user precede those of the watcher's user.
    @Test(.severalUsers) func manyTasksOfOthersHideNoPendingReasons() async throws {
        try daemon.letOthersPass()
        let peer = try Peer(daemon)
        let (user, path) = (UInt32(65534), "/v1/sessions/others")
        #expect(try await peer.ask(as: user, user, "PUT", path, "{}").status == 200)
        let url = server.url("/b")
        for part in 0..<4 {
            let tasks = (0..<250).map { number in
                #"{"token": "\#(part)-\#(number)", "kind": "download", "url": "\#(url)", "isSuspended": true}"#
            }
            let body = #"{"tasks": [\#(tasks.joined(separator: ", "))]}"#
            let created = try await peer.ask(as: user, user, "POST", path + "/tasks", body)
            #expect(created.status == 200)
        }
        let id = try await daemon.download(server.url("/a")) {
            $0.earliestBegin = .now + 3600
            $0.allowsExpensiveNetworkAccess = false
        }
        let watched = try await daemon.client.watch()
        defer { watched.close() }
        try bus.set("Metered", of: .networkManager, to: .number(1))
        let events = try await watched.take { event in
            event.pendingReasons?.contains { $0.kind == .metered } ?? false
        }
        #expect(events.last?.task == id)
    }

    /// Reloads the daemon's configuration with these update conditions.
    private func reload(updateConditions: String?) throws {
        let conditions = updateConditions.map { #", "updateConditions": \#($0)"# } ?? ""
        try daemon.configure(
            #"{"settlingTime": 0, "busAddress": "\#(bus.address)"\#(conditions)}"#
        )
        daemon.send(SIGHUP)
    }

    @Test func stagingsThatWaitFollowAChangedConfiguration() async throws {
        try bus.set("Metered", of: .networkManager, to: .number(1))
        try await poll("it is not seen") {
            try await daemon.client.status().conditions["metered"] == "yes"
        }
        try await daemon.makeSession("stagepack/1/1") { $0.isTransient = true }
        var job = StagingJob()
        job.application = "net.example.game"
        job.event = "periodic"
        job.conditions = UpdateConditions(requiresExternalPower: false)
        var request = TransferRequest(token: "1", kind: .staging, url: "net.example.game")
        request.isSuspended = true
        request.staging = job
        let ids = try await daemon.client.createTasks([request], in: "stagepack/1/1")
        let id = try #require(ids.first)
        try await daemon.wait(for: [.pausedByClient, .metered], of: id)
        try reload(
            updateConditions:
                #"{"requiresExternalPower": false, "allowsExpensiveNetworkAccess": true}"#
        )
        try await daemon.wait(for: [.pausedByClient], of: id)
        // If the configuration has no conditions, those of the job apply again.
        try reload(updateConditions: nil)
        try await daemon.wait(for: [.pausedByClient, .metered], of: id)
        try await daemon.kill()
        try daemon.configure(
            #"""
            {"settlingTime": 0, "busAddress": "\#(bus.address)",
             "updateConditions": {"requiresExternalPower": false, "allowsExpensiveNetworkAccess": true}}
            """#
        )
        try await daemon.start()
        try await daemon.wait(for: [.pausedByClient], of: id)
    }

    @Test func aPortalStopsEverything() async throws {
        let id = try await daemon.download(server.url("/a"))
        try await interrupt(id, reasons: [.portal]) {
            try bus.set("Connectivity", of: .networkManager, to: .number(2))
        } regain: {
            try bus.set("Connectivity", of: .networkManager, to: .number(4))
        }
    }

    @Test func noNetworkStopsEverything() async throws {
        let id = try await daemon.download(server.url("/a"))
        try await interrupt(id, reasons: [.offline]) {
            try bus.set("Connectivity", of: .networkManager, to: .number(1))
        } regain: {
            try bus.set("Connectivity", of: .networkManager, to: .number(4))
        }
    }

    @Test func discretionaryTransfersStopOnBattery() async throws {
        try bus.start(.power)
        try bus.set("OnBattery", of: .power, to: .flag(false))
        try await poll("it is not seen") {
            try await daemon.client.status().conditions["onBattery"] == "no"
        }
        try await daemon.makeSession { $0.isDiscretionary = true }
        let id = try await daemon.download(server.url("/a"))
        try await interrupt(id, reasons: [.onBattery]) {
            try bus.set("OnBattery", of: .power, to: .flag(true))
        } regain: {
            try bus.set("OnBattery", of: .power, to: .flag(false))
        }
    }
}
