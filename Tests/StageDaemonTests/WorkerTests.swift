import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Misbehaving workers: a process that may trace a worker controls its messages.
@Suite(.directory, .daemon, .timeLimit(.minutes(15)))
struct WorkerTests {
    private let daemon: DaemonProcess

    init() throws {
        daemon = try .required()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 0.01}"#)
    }

    /// Program in place of `stagepack`, beside a copy of the daemon's program.
    private static let program = """
        #!/usr/bin/python3
        import os, signal, socket, sys, time
        daemon = socket.socket(fileno=0)
        daemon.recv(1 << 16)
        with open(os.path.dirname(__file__) + "/starts", "a") as file:
            print(os.getpid(), file=file)
        mode = open(os.path.dirname(__file__) + "/mode").read()
        if mode == "huge":
            daemon.send(b'{"bytesReceived": 9223372036854775807, "bytesExpected": 9223372036854775807}')
        elif mode == "garbage":
            daemon.send(b'{"end": {"failure": 7}}')
            daemon.send(b"\\xff\\xfe")
            daemon.send(b'{"end": {"pendingReason": "slot"}}')
        elif mode == "marks":
            # The reason takes the daemon long to compare.
            marks = "\\u0301\\u0316" * 600
            daemon.send(b'{"end": {"failure": {"kind": "lost", "reason": "%s"}, "pendingReason": "backoff"}}' % marks.encode())
        elif mode == "files":
            # The kernel refuses them from Linux 6.16 on, before that the daemon does.
            try:
                socket.send_fds(daemon, [b"{}"], [1])
                daemon.send(b'{"end": {}}')
            except PermissionError:
                pass
        elif mode == "flood":
            while True:
                daemon.send(b'{"bytesReceived": 1}' + b" " * 60000)
        elif mode == "fresh":
            daemon.send(b'{"bytesReceived": 0, "bytesExpected": 8}')
            time.sleep(60)
        elif mode == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(os.path.dirname(__file__) + "/deaf", "w").close()
            if os.fork() == 0:
                os.setsid()
                time.sleep(60)
            else:
                time.sleep(600)
        """

    /// A suspended task for the job of a periodic run.
    private var periodicRequest: TransferRequest {
        var job = StagingJob()
        job.application = "net.example.game"
        job.event = "periodic"
        var request = TransferRequest(token: "1", kind: .staging, url: "net.example.game")
        request.isSuspended = true
        request.staging = job
        return request
    }

    @Test func theConfigurationReplacesTheConditionsOfJobs() async throws {
        try daemon.configure(
            #"{"updateConditions": {"requiresExternalPower": false, "allowsExpensiveNetworkAccess": true}}"#
        )
        try await daemon.start()
        try await daemon.makeSession("stagepack/1/1") { $0.isTransient = true }
        let request = periodicRequest
        var other = request
        other.token = "2"
        other.staging?.conditions = UpdateConditions()
        let ids = try await daemon.client.createTasks([request, other], in: "stagepack/1/1")
        let first = try await daemon.client.task(ids[0]).request.staging
        let second = try await daemon.client.task(ids[1]).request.staging
        // A job without conditions keeps none.
        #expect(first?.conditions == nil)
        let configured = UpdateConditions(
            requiresExternalPower: false,
            allowsExpensiveNetworkAccess: true
        )
        #expect(second?.conditions == configured)
    }

    /// Creates the task for the job of a periodic run in a session, and returns the task.
    private func createPeriodicTask(in session: String) async throws -> Int64 {
        try await daemon.makeSession(session) { $0.isTransient = true }
        return try #require(
            try await daemon.client.createTasks([periodicRequest], in: session).first
        )
    }

    @Test func aJobThatTheJournalRefusesReplacesNoPausedOne() async throws {
        try await daemon.start()
        let first = try await createPeriodicTask(in: "stagepack/1/1")
        var pause = TransferChange()
        pause.state = .paused
        _ = try await daemon.client.change(first, by: pause)
        try await daemon.changeJournal(
            """
            CREATE TRIGGER refusal BEFORE INSERT ON task
            BEGIN SELECT RAISE(ABORT, 'refused by a test'); END
            """
        )
        await #expect(throws: ControlError.self) {
            _ = try await createPeriodicTask(in: "stagepack/1/2")
        }
        let held: [PendingReason.Kind] = [.pausedByClient, .pausedByUser]
        #expect(try await daemon.client.task(first).pendingReasons.map(\.kind) == held)
        try await daemon.changeJournal("DROP TRIGGER refusal")
        let second = try await createPeriodicTask(in: "stagepack/1/2")
        #expect(try await daemon.client.task(second).pendingReasons.map(\.kind) == held)
        #expect(try await daemon.client.tasks().map(\.id) == [second])
    }

    /// Holds a write lock on the journal from its start until the file that it creates is removed.
    private static let lock = """
        import os, sqlite3, sys, time
        journal = sqlite3.connect(sys.argv[1], isolation_level=None)
        journal.execute("BEGIN IMMEDIATE")
        open(sys.argv[2], "w").close()
        while os.path.exists(sys.argv[2]): time.sleep(0.01)
        journal.execute("COMMIT")
        """

    /// Waits until a session is being removed, and refuses new tasks for this reason.
    private func waitForRemoval(of session: String) async throws {
        // This request is invalid, so the daemon refuses it in any case.
        let invalid = TransferRequest(token: "invalid", kind: .download, url: "invalid")
        try await poll("the session is not removed") {
            do throws(ControlError) {
                _ = try await daemon.client.createTasks([invalid], in: session)
                return false
            } catch {
                guard case .refused(let refusal) = error else { throw error }
                return refusal.code == .conflict
            }
        }
    }

    @Test func aJobAfterARefusedOneOfItsSessionReplacesTheEarlierOne() async throws {
        try await daemon.start()
        _ = try await createPeriodicTask(in: "stagepack/1/1")
        try await daemon.changeJournal(
            """
            CREATE TRIGGER refusal BEFORE INSERT ON task WHEN NEW.token = 'refused'
            BEGIN SELECT RAISE(ABORT, 'refused by a test'); END
            """
        )
        try await daemon.makeSession("stagepack/1/2") { $0.isTransient = true }
        let file = daemon.directory.appending("lock")
        let journal = daemon.state.appending("journal.sqlite").string
        let lock = try StartedProcess(
            ["/usr/bin/python3", "-c", Self.lock, journal, file.string],
            log: daemon.log
        )
        try await poll("the journal is not locked") { FileStatus.exists(file) }
        async let first = create(token: "refused", in: "stagepack/1/2")
        try await waitForRemoval(of: "stagepack/1/1")
        async let second = create(token: "1", in: "stagepack/1/2")
        // The second request is sent before the journal has stored the first one.
        for _ in 0..<20 { _ = try await daemon.client.status() }
        try Directory.open(daemon.directory).remove("lock")
        try await poll("the journal stays locked") { lock.status != nil }
        let refused = await first
        #expect(refused == nil)
        _ = await second
        // The task is in the journal, unless that was locked for too long.
        let id = try await createPeriodicTask(in: "stagepack/1/2")
        #expect(try await daemon.client.tasks().map(\.id) == [id])
    }

    /// Creates a periodic job, and returns its task; `nil` if it is refused.
    private func create(token: String, in session: String) async -> Int64? {
        var request = periodicRequest
        request.token = token
        // The caller expects refusals.
        return try? await daemon.client.createTasks([request], in: session).first
    }

    /// Starts the daemon with the program in place of the command.
    private func start(_ mode: String, permissions: FilePermissions) async throws {
        let directory = try Directory.open(daemon.directory).makeDirectory("programs")
        try ProgramFile.write(Self.program, to: directory.path.appending("stagepack"))
        try directory.changeMode(of: "stagepack", to: permissions)
        try directory.write(Array(mode.utf8), to: "mode", durably: false)
        let copy = directory.path.appending("stagepackd").string
        let script = "cp \"$1\" '\(copy)' && shift && exec '\(copy)' \"$@\""
        try await daemon.start(by: ["/bin/sh", "-c", script, "sh"])
    }

    /// Starts the worker of a session; returns the number of the task.
    private func ask(in session: String = "stagepack/1/1") async throws -> Int64 {
        try await daemon.makeSession(session) { $0.isTransient = true }
        var request = TransferRequest(token: "1", kind: .staging, url: "net.example.game")
        var job = StagingJob()
        job.application = "net.example.game"
        job.packs = ["level"]
        request.staging = job
        let ids = try await daemon.client.createTasks([request], in: session)
        return try #require(ids.first)
    }

    /// Numbers of the workers' processes, in the order of their starts.
    private func workers() -> [Substring] {
        let path = daemon.directory.pushing("programs/starts")
        return ((try? text(of: path)) ?? "").split(separator: "\n")
    }

    /// Number of starts of the worker.
    private func starts() -> Int { workers().count }

    /// Returns whether a process has not ended.
    private func isRunning(_ process: Substring) -> Bool {
        // A process that has ended has no command line any more, and later no file.
        let line = try? text(of: FilePath("/proc/\(process)/cmdline"))
        return !(line ?? "").isEmpty
    }

    private static let executable: FilePermissions = [
        .ownerReadWriteExecute, .groupReadExecute, .otherReadExecute,
    ]

    @Test(arguments: ["huge", "garbage", "marks", "files"])
    func reportsOfAWorkerDoNotEndTheDaemon(_ mode: String) async throws {
        try await start(mode, permissions: Self.executable)
        let id = try await ask()
        try await poll("it is not tried again") {
            // This fails at once if the daemon has ended.
            _ = try await daemon.client.status()
            return starts() >= 3
        }
        let task = try await daemon.client.task(id)
        let refusal = "a staging that is complete waits for nothing"
        let problem = mode == "garbage" ? refusal : "ended with status 0"
        #expect(task.lastProblem?.contains(problem) ?? false, "\(task)")
        #expect(task.bytesReceived.rawValue <= 1 << 50)
        #expect(try await daemon.kill(SIGTERM) == 0)
    }

    /// Cancels the task, waits until its session is removed, and ends the daemon.
    private func cancelAndEnd(_ id: Int64) async throws {
        let cancelled = try await daemon.change(id, to: .cancelled)
        #expect(cancelled.state == .cancelled)
        let sessions = try await daemon.client.sessions()
        #expect(sessions.isEmpty)
        #expect(try await daemon.kill(SIGTERM) == 0)
    }

    @Test func aWorkerThatCannotBeStartedIsTriedAgain() async throws {
        try await start("", permissions: [.ownerReadWrite])
        let id = try await ask()
        let problem = try await pollForValue("it says no reason") {
            try await daemon.client.task(id).pendingReasons.lazy.compactMap(\.problem).first
        }
        #expect(problem.contains("Permission denied"))
        try await cancelAndEnd(id)
    }

    @Test func byteCountsThatAClientReportsAreLimited() async throws {
        try await start("deaf", permissions: Self.executable)
        try await daemon.makeSession("stagepack/1/1") { $0.isTransient = true }
        let events = try await daemon.client.events(of: "stagepack/1/1")
        defer { events.close() }
        let id = try await ask()
        try await poll("it never runs") { try await daemon.client.task(id).state == .running }
        func tell(
            _ received: Int64,
            _ expected: Int64,
            priority: Double? = nil
        ) async throws
            -> TransferTask
        {
            var change = TransferChange()
            change.stagingBytes = StagingBytes(
                received: ByteCount(received),
                expected: ByteCount(expected)
            )
            change.priority = priority
            return try await daemon.client.change(id, by: change)
        }
        let task = try await tell(5, 7)
        #expect(task.bytesReceived == ByteCount(Int64(5)))
        #expect(task.bytesExpected == ByteCount(Int64(7)))
        for (received, expected) in [(1 << 50 + 1, 7), (5, Int.max)] {
            await #expect(throws: ControlError.self) {
                try await tell(Int64(received), Int64(expected))
            }
        }
        await #expect(throws: ControlError.self) { try await tell(6, 7, priority: 1) }
        #expect(try await daemon.client.task(id).bytesReceived == ByteCount(Int64(5)))
        // A worker has received the job.
        events.close()
        try await poll("no worker starts") { starts() >= 1 }
        await #expect(throws: ControlError.self) { try await tell(6, 7) }
        try await cancelAndEnd(id)
    }

    /// A worker that has just begun does not know yet what the client has received.
    @Test func theBytesOfAClientAreShownWhenAWorkerTakesOver() async throws {
        try await start("fresh", permissions: Self.executable)
        try await daemon.makeSession("stagepack/1/1") { $0.isTransient = true }
        let events = try await daemon.client.events(of: "stagepack/1/1")
        defer { events.close() }
        let id = try await ask()
        try await poll("it never runs") { try await daemon.client.task(id).state == .running }
        var change = TransferChange()
        change.stagingBytes = StagingBytes(received: ByteCount(5), expected: ByteCount(7))
        try await daemon.client.change(id, by: change)
        let watched = try await daemon.client.watch()
        defer { watched.close() }
        events.close()
        let expected = ByteCount(8)
        let reports = try await watched.take { $0.task == id && $0.bytesExpected == expected }
        #expect(reports.last?.bytesReceived == ByteCount(5), "\(reports)")
        let cancelled = try await daemon.change(id, to: .cancelled)
        #expect(cancelled.bytesReceived == ByteCount(5), "\(cancelled)")
    }

    /// A worker has ten seconds to end.
    @Test(.apart) func aWorkerThatIgnoresSIGTERMDelaysOnlyTheNextWorker() async throws {
        try await start("deaf", permissions: Self.executable)
        _ = try await ask()
        let sign = daemon.directory.pushing("programs/deaf")
        try await poll("it never starts") { FileStatus.exists(sign) }
        let first = try #require(workers().first)
        let second = try await ask(in: "stagepack/1/2")
        let tasks = try await daemon.client.tasks()
        #expect(tasks.map(\.id) == [second])
        #expect(tasks.map(\.pendingReasons) == [[PendingReason(.slot, resource: .workers)]])
        #expect(isRunning(first))
        try await poll("no worker follows") { starts() >= 2 }
        #expect(!isRunning(first))
        try await cancelAndEnd(second)
    }

    @Test(arguments: ["flood", "deaf"])
    func aWorkerThatDoesNotEndIsEnded(_ mode: String) async throws {
        try await start(mode, permissions: Self.executable)
        let id = try await ask()
        try await poll("it never starts") { starts() >= 1 }
        // The daemon responds to other requests meanwhile.
        _ = try await daemon.client.status()
        try await cancelAndEnd(id)
    }
}
