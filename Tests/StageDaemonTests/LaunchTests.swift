import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory, .daemon, .server)
struct LaunchTests {
    private let daemon: DaemonProcess
    private let peer: Peer
    private let server = TestServer.current

    init() async throws {
        daemon = try .required()
        peer = try Peer(daemon)
        for name in ["a", "b", "c"] {
            server.answer("/\(name)", with: .content(noise(20_000)))
        }
    }

    private func start(
        delay: Double = 0.2,
        lease: Double = 60,
        handler: LaunchHandler
    ) async throws {
        try daemon.configure(
            """
            {"relaunchDelay": \(delay), "launchLease": \(lease), "retryBase": 0.05,
             "settlingTime": 0}
            """
        )
        try await daemon.start()
        try await daemon.makeSession { $0.handler = handler }
    }

    /// Waits until the daemon begins a task of another session that is due after `seconds`.
    ///
    /// By then it has started each handler that was due. The task fails, so that it leaves no file.
    private func waitForTimers(dueIn seconds: Double) async throws {
        let path = "/timer-\(Date.now.timeIntervalSince1970)"
        server.answer(path, with: .status(404))
        try await daemon.makeSession("timers")
        try await daemon.download(server.url(path), in: "timers") {
            $0.earliestBegin = Date.now + seconds
        }
        try await poll("the task does not begin") { !server.requests(for: path).isEmpty }
    }

    /// Returns whether a process runs; a zombie does not.
    private func isAlive(_ process: Int32) -> Bool {
        let status = try? text(of: FilePath("/proc/\(process)/stat"))
        return status.map { !$0.isEmpty && !$0.contains(") Z ") } ?? false
    }

    @Test func aHandlerReceivesEventsAfterItsClientWasKilled() async throws {
        try await start(handler: peer.handler("acknowledge"))
        let gate = Gate()
        for name in ["a", "b", "c"] {
            server.answer("/\(name)", with: Answer.content(noise(400_000)).held(until: gate))
        }
        let urls = ["/a", "/b", "/c"].map { server.url($0) }
        var client: StartedProcess? = try StartedProcess(
            ["/usr/bin/env", "STAGEPACK_SOCKET=\(daemon.socket)"] + peer.command("client") + urls,
            log: daemon.directory.appending("client.log")
        )
        try await peer.wait(for: "attached")
        client?.send(SIGKILL)
        try await poll("it does not end") { client?.status == 1000 + SIGKILL }
        client = nil
        gate.open()
        try await peer.wait(for: "acknowledged")
        let notes = try peer.notes("acknowledged")
        #expect(notes.map(\.sequences) == [[1, 2, 3]])
        #expect(notes[0].session == "s")
        try await waitForTimers(dueIn: 1)
        // The notes of the client and of one handler.
        #expect(try peer.notes("started").map { $0.launch != nil } == [false, true])
        let session = try await daemon.client.session("s")
        #expect(session.acknowledgedEvent == 3)
        #expect(session.failedLaunches == 0)
        #expect(try await daemon.client.tasks(in: "s") == [])
        #expect(try daemon.names(in: "staged/\(geteuid())") == [])
    }

    @Test func aHandlerThatFailsIsStartedLaterEachTimeAndNotForEver() async throws {
        try await start(handler: peer.handler("leave"))
        try await daemon.download(server.url("/a"))
        try await peer.wait(for: "started", count: 5)
        let times = try peer.notes("started").map(\.time)
        // The sum of the last three delays: the second launch may follow a slow start of the first handler at once.
        #expect(times[4] - times[0] >= 2.8)
        #expect(Set(try peer.notes("started").map(\.launch)).count == 5)
        try await poll("the failure is not counted") {
            try await daemon.client.session("s").failedLaunches == 5
        }
        // The time of a sixth launch passes without a launch.
        try await waitForTimers(dueIn: 13)
        let before = try processorTime()
        try await waitForTimers(dueIn: 2)
        #expect(try peer.notes("started").count == 5)
        let spent = try processorTime() - before
        #expect(spent < 0.3, "a daemon that waits has work to do: \(spent) s of 2")
        // A launch is tried again for another version of the handler, and after a client was attached.
        try await daemon.makeSession {
            $0.handler = peer.handler("leave")
            $0.handler?.version = "2"
        }
        try await peer.wait(for: "started", count: 6)
    }

    /// A client names its handler, and could fill the log with errors.
    @Test func aHandlerThatIsNotThereIsNoErrorOfTheDaemon() async throws {
        let name = "/" + String(repeating: "a", count: 3000)
        try await start(delay: 600, handler: LaunchHandler(command: [name]))
        try await daemon.download(server.url("/a"))
        let line = try await pollForValue("no handler fails") {
            try daemon.said().split(whereSeparator: \.isNewline).first {
                $0.contains("A handler could not be started")
            }
        }
        #expect(line.contains(" info "), "\(line)")
        #expect(line.utf8.count < 1000, "\(line)")
    }

    /// The processor time that the daemon has taken, in seconds.
    private func processorTime() throws -> Double {
        let process = try #require(daemon.process)
        let fields = try text(of: FilePath("/proc/\(process)/stat")).split(separator: " ")
        let ticks = fields[13...14].compactMap { Double($0) }.reduce(0, +)
        return ticks / Double(sysconf(CInt(_SC_CLK_TCK)))
    }

    /// Shells and service managers may start programs with SIGCHLD ignored, and execve(2) keeps that.
    @Test func theStatusOfAHandlerIsKnownIfTheDaemonInheritsIgnoredSignals() async throws {
        try await daemon.start(by: ["/usr/bin/env", "--ignore-signal=CHLD"])
        try await daemon.makeSession {
            $0.handler = LaunchHandler(command: ["/bin/sh", "-c", "exit 7"])
        }
        try await daemon.download(server.url("/a"))
        try await poll("no handler ends") { try daemon.said().contains("A handler has ended") }
        #expect(try daemon.said().contains("exited(7)"))
    }

    @Test func aClientThatComesByItselfEndsTheDelay() async throws {
        try await start(delay: 600, handler: peer.handler("leave"))
        try await daemon.download(server.url("/a"))
        try await poll("the failure is not counted") {
            try await daemon.client.session("s").failedLaunches == 1
        }
        let stream = try await daemon.attach()
        let first = try await stream.take { $0.kind == .finishedEvents }
        #expect(first.compactMap(\.sequence) == [1])
        #expect(try await daemon.client.session("s").failedLaunches == 0)
        stream.close()
        try await peer.wait(for: "started", count: 2)
    }

    @Test func aHandlerThatHangsIsEndedWithItsGroup() async throws {
        // The handler must handle SIGTERM before its time limit, which counts from its launch.
        let lease = 30.0
        try await start(delay: 600, lease: lease, handler: peer.handler("hang"))
        let began = Date.now
        try await daemon.download(server.url("/a"))
        try await peer.wait(for: "child")
        let processes =
            try peer.notes("started").map(\.process) + peer.notes("child").map(\.process)
        #expect(processes.count == 2)
        #expect(processes.allSatisfy(isAlive))
        try await peer.wait(for: "asked")
        try await poll("the handler is not ended") { !processes.contains(where: isAlive) }
        #expect(Date.now.timeIntervalSince(began) > lease + 9)
        try await poll("the failure is not counted") {
            try await daemon.client.session("s").failedLaunches == 1
        }
        #expect(try peer.notes("started").count == 1)
    }

    /// Launches a second daemon while the first one is ending, which waits for its handler for ten seconds; the caller ends the
    /// second one.
    private func launchBesideEndingDaemon() async throws -> DaemonProcess {
        try await start(delay: 600, lease: 600, handler: peer.handler("hang"))
        try await daemon.download(server.url("/a"))
        try await peer.wait(for: "child")
        daemon.send(SIGTERM)
        let lock = daemon.state.appending("lock")
        try await poll("the daemon does not end") { try text(of: lock).contains("ending") }
        let next = DaemonProcess(in: daemon.directory)
        try next.launch()
        return next
    }

    @Test func aDaemonWaitsForTheEndOfAnother() async throws {
        let next = try await launchBesideEndingDaemon()
        defer { next.abandon() }
        try await poll("the next daemon does not start") {
            // An error means that no daemon answers yet.
            let status = try? daemon.client.answer(to: .status, timeout: .seconds(5))
            return next.status != nil || status?.process == next.process.map { Int($0) }
        }
        #expect(next.status == nil)
        #expect(try await daemon.end() == 0)
    }

    @Test func aDaemonThatWaitsForTheEndOfAnotherCanBeEnded() async throws {
        let next = try await launchBesideEndingDaemon()
        defer { next.abandon() }
        try await poll("the next daemon does not wait") {
            // On a busy machine, the first daemon may have ended before. An error means that no daemon answers yet.
            let status = try? daemon.client.answer(to: .status, timeout: .seconds(5))
            return try daemon.said().contains("Waiting for the end of another daemon")
                || status?.process == next.process.map { Int($0) }
        }
        #expect(try await next.kill(SIGTERM) == 0)
        #expect(try await daemon.end() == 0)
    }

    @Test func aHandlerThatAsksForTimeGetsIt() async throws {
        // The handler must request more time before its time limit, which counts from its launch.
        try await start(lease: 20, handler: peer.handler("extend", "45"))
        try await daemon.download(server.url("/a"))
        try await peer.wait(for: "acknowledged")
        try await waitForTimers(dueIn: 0.5)
        #expect(try peer.notes("started").count == 1)
        #expect(try await daemon.client.session("s").failedLaunches == 0)
    }

    @Test func tasksThatAHandlerCreatesWaitForTheLaunchDelay() async throws {
        // The handler must create its task before this delay ends, and the test must read the task.
        try await start(delay: 60, handler: peer.handler("create", server.url("/b")))
        try await daemon.download(server.url("/a"))
        try await peer.wait(for: "created")
        let launch = try #require(try peer.notes("started").first).time
        let task = try #require(try await daemon.client.tasks(in: "s").first)
        #expect(task.pendingReasons.map(\.kind) == [.penalty])
        let until = try #require(task.pendingReasons.first?.until).timeIntervalSince1970
        // The handler writes its note some time after its launch.
        #expect((30...60.1).contains(until - launch))
        #expect(server.requests(for: "/b").isEmpty)
        try await peer.wait(for: "acknowledged", count: 2)
        let end = try #require(try peer.notes("acknowledged").last).time
        #expect(end > until)
        #expect(server.requests(for: "/b").count == 1)
    }

    @Test func aLaunchCountsThatTheDaemonDidNotOutlive() async throws {
        try await start(delay: 600, handler: peer.handler("hold"))
        try await daemon.download(server.url("/a"))
        try await peer.wait(for: "held")
        let handler = try #require(try peer.notes("started").first).process
        defer { Glibc.kill(handler, SIGKILL) }
        try await daemon.kill()
        try await daemon.start()
        #expect(try await daemon.client.session("s").failedLaunches == 1)
        // A client that attaches in time prevents a second launch.
        let stream = try await daemon.attach(launch: "of the launch before")
        try await waitForTimers(dueIn: 4)
        #expect(try peer.notes("started").count == 1)
        try await daemon.client.acknowledge(Acknowledgement(sequence: 1), in: "s")
        stream.close()
        try await waitForTimers(dueIn: 0.5)
        #expect(try peer.notes("started").count == 1)
    }

    @Test func aDaemonThatDiesOverAndOverDoesNotStartHandlersFaster() async throws {
        try await start(delay: 0.5, handler: peer.handler("hold"))
        // The time before the first launch, from which the delays count.
        let began = Date.now
        try await daemon.download(server.url("/a"))
        try await peer.wait(for: "held")
        for _ in 0..<12 {
            try await daemon.kill()
            try await daemon.start()
            try await waitForTimers(dueIn: 0.1)
        }
        let notes = try peer.notes("started")
        let most = 1 + Int(log2(Date.now.timeIntervalSince(began) / 0.5 + 1))
        for note in notes { Glibc.kill(note.process, SIGKILL) }
        #expect(notes.count <= most)
    }

    /// Changes the journal of the running daemon.
    private func changeJournal(_ statement: String) async throws {
        let script = """
            import sqlite3, sys
            with sqlite3.connect(sys.argv[1]) as journal: journal.execute(sys.argv[2])
            """
        let journal = daemon.state.appending("journal.sqlite").string
        let command = ["/usr/bin/python3", "-c", script, journal, statement]
        _ = try await peer.run(as: geteuid(), getegid(), command)
    }

    @Test func aLaunchThatCannotBeRecordedIsNoFullDisk() async throws {
        try await start(handler: peer.handler("acknowledge"))
        try await changeJournal(
            """
            CREATE TRIGGER refusal BEFORE UPDATE OF relaunch ON session
            BEGIN SELECT RAISE(ABORT, 'refused by a test'); END
            """
        )
        try await daemon.download(server.url("/a"))
        try await poll("the transfers do not wait") {
            try daemon.said().contains("The disk cannot be written, and all transfers wait")
        }
        let said = try daemon.said()
        #expect(said.contains("refused by a test"))
        #expect(!said.contains("The disk is full"))
        try await changeJournal("DROP TRIGGER refusal")
        try await peer.wait(for: "acknowledged")
    }

    @Test func aChallengeStartsTheHandlerOnceToo() async throws {
        try await start(handler: peer.handler("acknowledge"))
        try await daemon.makeSession {
            $0.handler = peer.handler("acknowledge")
            $0.answersChallenges = true
        }
        let refusal = Answer.status(401).field("WWW-Authenticate", "Basic realm=\"x\"")
        server.answer("/a", with: refusal, .content(noise(1000)))
        let id = try await daemon.download(server.url("/a"))
        try await peer.wait(for: "acknowledged")
        try await daemon.wait(for: [.authentication], of: id)
        try await waitForTimers(dueIn: 0.5)
        #expect(try peer.notes("started").count == 1)
        var change = TransferChange()
        change.authorization = "Basic eDp5"
        try await daemon.client.change(id, by: change)
        try await peer.wait(for: "acknowledged", count: 2)
        #expect(try peer.notes("acknowledged").map(\.sequences) == [[1], [2]])
        #expect(server.requests(for: "/a").last?["authorization"] == "Basic eDp5")
    }
}
