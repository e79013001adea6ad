import Glibc
import StageContainer
import StageControl
import StageModel
import StageSystem
import StageTesting
import Subprocess
import SystemPackage
import Testing

@Suite(.server, .directory)
struct DaemonTests {
    @Test func aCommandStagesInItsTurn() async throws {
        var installed = try await Installed()
        let pack = try SamplePack.large(try .aurora, version: 1, mebibytes: 4)
        let gate = Gate()
        try installed.world.publish([pack]) { $0.held(after: 1 << 20, until: gate) }
        let seen = try await withDaemon(&installed) { installed, client in
            let (tasks, task) = AsyncStream.makeStream(of: TransferTask.self)
            let arguments = ["prefetch", "--app", "net.example.wallpaper"]
            let ending = try await installed.world.program.run(arguments) { _ in
                try await poll("the daemon knows of nothing") {
                    guard let first = try await client.tasks().first else { return false }
                    task.yield(first)
                    return first.state == .running
                }
                task.finish()
                gate.open()
            }
            #expect(ending.status == 0, "\(ending.error)")
            #expect(try await client.sessions().isEmpty)
            return await tasks.reduce(nil) { $1 } as TransferTask?
        }
        let job = try #require(seen?.request.staging)
        #expect(job.application == "net.example.wallpaper")
        #expect(job.isEssentialOnly == false)
        #expect(seen?.request.description == "aurora")
        #expect(try installed.staged() == ["aurora": 1])
        #expect(installed.world.server.counts(for: pack.path).requests == 1)
        #expect(try installed.names(in: "downloads") == [])
    }

    @Test func rootLearnsThatOtherUsersMayHaveTransfers() async throws {
        var installed = try await Installed()
        try await withDaemon(&installed) { installed, _ in
            let own = try await installed.run("tasks")
            let note =
                geteuid() == 0
                ? "root has no transfers; 'stagepack tasks --all' lists those of all users"
                : "there are no transfers"
            #expect(own.error == "\(note)\n", "\(own)")
            guard geteuid() == 0 else { return }
            let all = try await installed.run("tasks", "--all")
            #expect(all.error == "there are no transfers\n", "\(all)")
        }
    }

    @Test func withoutADaemonTheCommandFetchesItself() async throws {
        var installed = try await Installed()
        try installed.world.publish(try SamplePack.large(try .aurora, version: 1, mebibytes: 4))
        installed.allowDaemon()
        let ending = try await installed.run("prefetch", "--app", "net.example.wallpaper")
        #expect(ending.status == 0, "\(ending.error)")
        #expect(try installed.staged() == ["aurora": 1])
        let tasks = try await installed.run("tasks")
        #expect(tasks.status == 50)
        let option = geteuid() == 0 ? "" : " --socket \(installed.socketName)"
        #expect(
            tasks.error == """
                stagepack: error: no daemon listens at '\(installed.socketName)'
                hint: start it: 'stagepackd\(option)'

                """
        )
    }

    /// The programs of tests have an empty 'STAGEPACK_SOCKET', unless they ask for a daemon.
    @Test func aVariableThatDisablesTheDaemonIsNamed() async throws {
        let installed = try await Installed()
        let tasks = try await installed.run("tasks")
        #expect(tasks.status == 50)
        #expect(
            tasks.error == """
                stagepack: error: no daemon listens at any socket
                hint: run 'unset STAGEPACK_SOCKET': its empty value disables the daemon

                """
        )
    }

    @Test(.rootInMountNamespace) func anotherUserLearnsToStartItsOwnDaemon() async throws {
        var machine = try await SharedMachine()
        machine.userEnvironment["STAGEPACK_SOCKET"] = "/run/home/control.sock"
        let tasks = try await machine.userForAll(["tasks"])
        #expect(tasks.status == 50)
        #expect(
            tasks.error == """
                stagepack: error: no daemon listens at '/run/home/control.sock'
                hint: start it: 'stagepackd --socket /run/home/control.sock'

                """
        )
    }

    /// The package's socket starts the system's daemon for all users.
    @Test(.rootInMountNamespace) func aUserReceivesAHintToStartTheDaemonOfTheSystem() async throws {
        var machine = try await SharedMachine()
        machine.userEnvironment["STAGEPACK_SOCKET"] = ControlSocket.system
        let without = try await machine.userForAll(["tasks"])
        #expect(without.status == 50)
        let start = "hint: as root, start it: 'stagepackd'\n"
        #expect(without.error.hasSuffix(start), "\(without)")
        let units = machine.installed.world.directory.path.appending("run/systemd/system")
        try Directory.make(units).write([], to: "stagepackd.socket", durably: false)
        let with = try await machine.userForAll(["tasks"])
        let command = "systemctl enable --now stagepackd.socket"
        #expect(with.status == 50)
        #expect(with.error.hasSuffix("\nhint: as root, run '\(command)'\n"), "\(with)")
    }

    @Test func transfersArePausedResumedAndCancelledByTheirNumbers() async throws {
        var installed = try await Installed()
        let server = installed.world.server
        server.answer(
            "/large",
            with: Answer.content(Array(repeating: 7, count: 1 << 20)).stalled(after: 1000)
        )
        let url = server.url("/large")
        try await withDaemon(&installed) { installed, client in
            try await client.makeSession("maps", configuration: SessionConfiguration())
            let request = TransferRequest(token: "1", kind: .download, url: url)
            let id = try #require(try await client.createTasks([request], in: "maps").first)
            let paused = try await installed.run("pause", "\(id)")
            #expect(paused.status == 0, "\(paused.error)")
            #expect(try await client.task(id).pendingReasons == [PendingReason(.pausedByUser)])
            let why = try await installed.run("why")
            #expect(why.output.contains("it was paused; 'stagepack resume \(id)' resumes it"))
            #expect(try await installed.run("resume", "\(id)").status == 0)
            #expect(
                try await client.task(id).pendingReasons.contains(PendingReason(.pausedByUser))
                    == false
            )
            #expect(try await installed.run("cancel", "--session", "maps").status == 0)
            #expect(try await client.task(id).state == .cancelled)
            let unknown = try await installed.run("cancel", "4711")
            #expect(unknown.status == 51)
            let list = geteuid() == 0 ? "stagepack tasks --all" : "stagepack tasks"
            #expect(
                unknown.error == """
                    stagepack: error: there is no task 4711
                    hint: run '\(list)' to see transfers and their sessions

                    """
            )
        }
    }

    @Test func theRowsOfTransfersNameSessionAndUser() async throws {
        var installed = try await Installed()
        try await withDaemon(&installed) { installed, client in
            try await client.makeSession("net.example.maps", configuration: SessionConfiguration())
            var request = TransferRequest(token: "a", kind: .download, url: "http://127.0.0.1:1/a")
            request.isSuspended = true
            let id = try await client.createTasks([request], in: "net.example.maps")[0]
            let user = geteuid() == 0 ? " of user 'root'" : ""
            let rows = try await installed.run("tasks")
            #expect(
                rows.output.split(separator: "\n").first?.hasSuffix(
                    "  http://127.0.0.1:1/a  [session 'net.example.maps'\(user)]"
                ) == true,
                "\(rows)"
            )
            let json = try await installed.run("tasks", "--json")
            for member in [
                "\"id\":\(id)", "\"session\":\"net.example.maps\"", "\"user\":\(geteuid())",
            ] {
                #expect(json.output.replacing(" ", with: "").contains(member), "\(json)")
            }
        }
    }

    @Test func theMetricsOfTheDaemonArePrintedOrWritten() async throws {
        var installed = try await Installed()
        let none = try await installed.run("metrics", "--daemon")
        #expect(none.status == 50)
        #expect(none.output == "")
        try await withDaemon(&installed) { installed, client in
            try await client.makeSession("maps", configuration: SessionConfiguration())
            var request = TransferRequest(token: "a", kind: .download, url: "http://127.0.0.1:1/a")
            request.isSuspended = true
            _ = try await client.createTasks([request], in: "maps")
            let expected = try await client.metrics(all: geteuid() == 0)
            let printed = try await installed.run("metrics", "--daemon")
            #expect(printed == Program.Ending(status: 0, output: expected, error: ""))
            #expect(
                printed.output.contains(
                    "\nstagepack_daemon_tasks{kind=\"transfer\",state=\"suspended\"} 1\n"
                )
            )
            let path = installed.world.directory.path.appending("daemon.prom")
            let written = try await installed.run("metrics", "--daemon", "-o", path.string)
            #expect(written == Program.Ending(status: 0, output: "", error: ""))
            #expect(try text(of: path) == expected)
        }
    }

    @Test func aDownloadIsAddedOnceAndAllTransfersAreChanged() async throws {
        var installed = try await Installed()
        let server = installed.world.server
        server.answer(
            "/large",
            with: Answer.content(Array(repeating: 7, count: 1 << 20)).stalled(after: 1000)
        )
        server.answer("/small", with: .content(Array("content".utf8)))
        let (large, small) = (server.url("/large"), server.url("/small"))
        try await withDaemon(&installed) { installed, client in
            for _ in 1...2 { #expect(try await installed.run("tasks", "add", large).status == 0) }
            let id = try #require(try await client.tasks().first?.id)
            #expect(try await client.tasks().count == 1)
            #expect(try await installed.run("pause", "--all").status == 0)
            #expect(try await client.task(id).pendingReasons == [PendingReason(.pausedByUser)])
            #expect(try await installed.run("resume", "--all").status == 0)
            #expect(
                try await !client.task(id).pendingReasons.contains(PendingReason(.pausedByUser))
            )
            #expect(try await installed.run("cancel", "--all").status == 0)
            #expect(try await client.task(id).state == .cancelled)

            #expect(try await installed.run("tasks", "add", small).status == 0)
            try await poll("the file never comes") {
                try await installed.run("tasks").output.contains("\n    file: ")
            }
            let done = try #require(try await client.tasks().last { $0.state == .completed }?.id)
            let late = try await installed.run("cancel", "\(done)")
            let error = "stagepack: error: task \(done) has completed\n"
            #expect(late == Program.Ending(status: 51, output: "", error: error))
            #expect(try await installed.run("cancel", "--all").status == 0)
            let refused = try await installed.run("tasks", "add", "file:///etc/passwd")
            #expect(refused.status == 64)
        }
    }

    @Test func aDownloadIsMovedWhereItIsWanted() async throws {
        var installed = try await Installed()
        let (server, content) = (installed.world.server, Array("content".utf8))
        server.answer("/small", with: .content(content))
        server.answer("/none", with: .status(404))
        server.answer("/encoded", with: .content(content).field("Content-Encoding", "br"))
        let size = "4611686018427387904"
        server.answer("/huge", with: .content(content).field("Content-Length", size))
        server.answer("/slow", with: .content(content).stalled(after: 3))
        let folder = installed.world.directory.path
        let output = folder.appending("file").string
        try await withDaemon(&installed) { installed, client in
            func add(_ path: String, _ more: String...) async throws -> Program.Ending {
                let arguments = ["tasks", "add", server.url(path), "-o", output] + more
                return try await installed.world.program.run(arguments)
            }
            try installed.world.directory.write(Array("old".utf8), to: "file", durably: false)
            let added = try await add("/small")
            #expect(added.status == 0, "\(added)")
            #expect(added.output.contains("\n    file: \(output)\n"), "\(added)")
            #expect(try bytes(of: FilePath(output)) == content)

            let failures: [(path: String, status: Int32)] = [
                ("/none", 21), ("/encoded", 21), ("/huge", 41),
            ]
            for (path, status) in failures {
                let failed = try await add(path)
                #expect(failed.status == status, "\(failed)")
            }
            let wrong = try await add("/small", "--sha256", String(repeating: "0", count: 64))
            #expect(wrong.status == 22, "\(wrong)")
            #expect(try bytes(of: FilePath(output)) == content)
            try await poll("the daemon keeps sessions") { try await client.sessions().isEmpty }

            // Interrupted, the command leaves the download to the daemon.
            let arguments = ["tasks", "add", server.url("/slow"), "-o", output]
            let interrupted = try await installed.world.program.run(arguments) { running in
                try await poll("no request comes") { !server.requests(for: "/slow").isEmpty }
                running.send(SIGINT)
            }
            #expect(interrupted.status == 130, "\(interrupted)")
            let id = try #require(try await client.tasks().first?.id)
            server.answer("/slow", with: .content(Array("slow content".utf8)))
            #expect(try await installed.run("pause", "\(id)").status == 0)
            #expect(try await installed.run("resume", "\(id)").status == 0)
            let again = try await installed.world.program.run(arguments)
            #expect(again.status == 0, "\(again)")
            #expect(again.output.hasPrefix("\(id)  "), "\(again)")
            #expect(try bytes(of: FilePath(output)) == Array("slow content".utf8))
        }
    }

    @Test func aTransferThatWaitsNamesTheLastFailure() async throws {
        var installed = try await Installed()
        installed.world.server.answer("/down", with: .status(503))
        let url = installed.world.server.url("/down")
        try await withDaemon(&installed) { installed, client in
            try await client.makeSession("maps", configuration: SessionConfiguration())
            let request = TransferRequest(token: "1", kind: .download, url: url)
            let id = try #require(try await client.createTasks([request], in: "maps").first)
            let hold = try await pollForValue("it never waits for another attempt") {
                try await client.task(id).pendingReasons.first { $0.kind == .backoff }
            }
            #expect(hold.problem?.contains("503") ?? false, "\(hold)")
            for arguments in [["tasks", "\(id)"], ["why"]] {
                // While an attempt runs, the task does not wait.
                let ending = try await pollForValue("'\(arguments[0])' shows no wait") {
                    let ending = try await installed.world.program.run(arguments)
                    return ending.output.contains("waits: ") ? ending : nil
                }
                let line = ending.output.split(separator: "\n").first { $0.contains("waits: ") }
                #expect(line?.contains("an attempt failed") ?? false, "\(ending)")
                #expect(line?.contains("503") ?? false, "\(ending)")
                #expect(!ending.output.contains("last problem"))
            }
        }
    }
}

extension Installed {
    /// The names in a directory of the container.
    fileprivate func names(in name: String) throws -> [String] {
        let directory = try Directory.open(container).directory(FilePath(name))
        return try directory?.entries().map(\.path.string).sorted() ?? []
    }
}

/// Runs the daemon beside `body`, in the mount namespace that the program sees; it must not take more
/// memory than a program may.
func withDaemon<Value: Sendable>(
    _ installed: inout Installed,
    ending signal: Int32 = SIGTERM,
    sparesWorkers: Bool = false,
    bus: String = "unix:path=/nowhere",
    tasksPerUser: Int = 1000,
    _ body: @escaping @Sendable (Installed, ControlClient) async throws -> Value
) async throws -> Value {
    let directory = installed.world.directory.path
    let socket = installed.socket
    installed.allowDaemon()
    _ = try Directory.make(socket.removingLastComponent())
    let settings = #"""
        {"relaunchDelay": 0.2, "settlingTime": 0, "busAddress": "\#(bus)", "tasksPerUser": \#(tasksPerUser)}
        """#
    // The socket of a killed daemon.
    _ = try? Directory.open(socket.removingLastComponent()).remove("control.sock")
    try installed.world.directory.write(
        Array(settings.utf8),
        to: "stagepackd.json",
        durably: false
    )
    var daemon = installed.world.program
    let program = try BuiltProgram.path(of: "stagepackd").string
    if daemon.wrapper.isEmpty {
        daemon.wrapper = [program]
    } else {
        daemon.wrapper[daemon.wrapper.count - 1] = program
    }
    let arguments = [
        "--state", directory.appending("transfers").string, "--socket", installed.socketName,
        "--config", directory.appending("stagepackd.json").string,
    ]
    let (results, result) = AsyncStream.makeStream(of: Value.self)
    let copy = installed
    let ending = try await daemon.run(arguments) { running in
        defer {
            let children =
                signal == SIGKILL && !sparesWorkers ? (try? running.children()) ?? [] : []
            running.send(signal)
            for child in children { kill(child, signal) }
        }
        try await poll { FileStatus.exists(socket) }
        result.yield(try await body(copy, ControlClient(path: socket.string)))
        #expect(try running.peakMemory() <= Program.memoryLimit)
    }
    #expect(ending.status == (signal == SIGKILL ? Program.killed : 0), "\(ending.error)")
    for await value in results { return value }
    throw NeverHappened()
}
