import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// `tasks add` for a URL whose earlier transfer ended without a file, and the output about transfers.
@Suite(.server, .directory)
struct TasksAddTests {
    private static let content = Array("content".utf8)

    @Test(arguments: [TransferTask.State.cancelled, .failed, .completed])
    func aTransferThatEndedWithoutAFileIsReplaced(state: TransferTask.State) async throws {
        var installed = try await Installed()
        let server = installed.world.server
        let first: Answer =
            switch state {
            case .cancelled: .content(Self.content).stalled(after: 3)
            case .failed: .status(404)
            default: .content(Self.content)
            }
        server.answer("/file", with: first)
        let url = server.url("/file")
        try await withDaemon(&installed) { installed, client in
            #expect(try await installed.run("tasks", "add", url).status == 0)
            let old = try #require(try await client.tasks().first?.id)
            if state == .cancelled {
                #expect(try await installed.run("cancel", "\(old)").status == 0)
            }
            try await poll("it does not end") { try await client.task(old).state == state }
            if state == .completed {
                // While the file exists, the command prints the transfer that has it.
                #expect(try await installed.run("tasks", "add", url).output.hasPrefix("\(old)  "))
                let list = try await installed.run("tasks").output
                let file = FilePath(
                    String(
                        try #require(
                            list.split(separator: "    file: ").last?.split(separator: "\n").first
                        )
                    )
                )
                try Directory.open(file.removingLastComponent()).remove(
                    #require(file.lastComponent)
                )
            }
            server.answer("/file", with: .content(Self.content))
            let added = try await installed.run("tasks", "add", url)
            #expect(added.status == 0 && !added.output.hasPrefix("\(old)  "), "\(added)")
            try await poll("the file never comes") {
                try await installed.run("tasks").output.contains("\n    file: ")
            }
        }
    }

    @Test(arguments: [TransferTask.State.cancelled, .failed])
    func aTransferOfAnInterruptedCommandIsReplaced(state: TransferTask.State) async throws {
        var installed = try await Installed()
        let server = installed.world.server
        server.answer("/file", with: .content(Self.content).stalled(after: 3))
        let output = installed.world.directory.path.appending("file")
        let arguments = ["tasks", "add", server.url("/file"), "-o", output.string]
        try await withDaemon(&installed) { installed, client in
            let interrupted = try await installed.world.program.run(arguments) { running in
                try await poll("no request comes") { !server.requests(for: "/file").isEmpty }
                running.send(SIGINT)
            }
            #expect(interrupted.status == 130, "\(interrupted)")
            let id = try #require(try await client.tasks().first?.id)
            if state == .cancelled {
                #expect(try await installed.run("cancel", "\(id)").status == 0)
            } else {
                server.answer("/file", with: .status(404))
                #expect(try await installed.run("pause", "\(id)").status == 0)
                #expect(try await installed.run("resume", "\(id)").status == 0)
                try await poll("it does not fail") { try await client.task(id).state == .failed }
            }
            server.answer("/file", with: .content(Self.content))
            let again = try await installed.world.program.run(arguments)
            #expect(again.status == 0, "\(again)")
            #expect(try bytes(of: output) == Self.content)
        }
    }

    /// Rows: the request without a response, and the output of an interrupted command.
    @Test(arguments: [
        ("PUT ", "interrupted before the daemon was asked for the download"),
        ("POST ", "interrupted before the daemon confirmed the download, which it may continue"),
        ("GET /v1/sessions/", "interrupted: the daemon continues the download"),
    ])
    func anInterruptedCommandSaysWhatItKnowsOfTheDownload(
        request: String,
        message: String
    ) async throws {
        var installed = try await Installed()
        let daemon = try installed.startTestDaemon()
        defer {
            daemon.release()
            daemon.stop()
        }
        let output = installed.world.directory.path.appending("file")
        let arguments = ["tasks", "add", "http://127.0.0.1:1/file", "-o", output.string]
        let isStream = request.hasPrefix("GET")
        if !isStream { daemon.hold(request) }
        let ending = try await installed.world.program.run(arguments) { running in
            try await poll("no request comes") {
                daemon.requests.contains { line in
                    line.line.hasPrefix(request)
                        && (!isStream || line.line.contains("/events"))
                }
            }
            running.send(SIGINT)
        }
        #expect(ending.status == 130, "\(ending)")
        #expect(ending.error.contains("error: \(message)\n"), "\(ending)")
    }

    @Test(
        .strace,
        .enabled("takes another file system") {
            FileStatus.exists("/dev/shm") && FileStatus.exists("/var/tmp")
        }
    )
    func aFileThatIsCopiedIsOnDiskBeforeItIsRemoved() async throws {
        var installed = try await Installed()
        let server = installed.world.server
        server.answer("/file", with: .content(Self.content))
        // The test's own directory is in memory.
        let disk = try Directory.open("/var/tmp")
        let name = FilePath.Component(known: "stagepack-\(UInt64.random(in: 0 ... .max))")
        let folder = try disk.makeDirectory(FilePath(name))
        defer { _ = try? disk.removeTree(name) }
        let output = folder.path.appending("file")
        let trace = installed.world.directory.path.appending("trace")
        let arguments = ["tasks", "add", server.url("/file"), "-o", output.string]
        try await withDaemon(&installed) { installed, _ in
            var program = installed.world.program
            // The last word of a wrapper is the path of the program.
            program.wrapper =
                Array(program.wrapper.dropLast()) + [
                    "/usr/bin/strace", "-f", "-qq", "-y", "-o", trace.string, "-e", "signal=none",
                    "-e", "trace=fsync,unlinkat", try Program.path.string,
                ]
            let ending = try await program.run(arguments)
            #expect(ending.status == 0, "\(ending)")
        }
        #expect(try bytes(of: output) == Self.content)
        let calls = try text(of: trace).split(separator: "\n")
        let sync = calls.firstIndex {
            $0.contains("fsync(") && $0.contains("<\(folder.path.string)>")
        }
        let removal = calls.firstIndex { $0.contains("unlinkat(") && $0.contains("/staged/") }
        let first = try #require(sync, "\(calls)")
        #expect(first < (try #require(removal, "\(calls)")), "\(calls)")
    }

    /// A server that is unavailable for a while does not reduce the received bytes.
    @Test func anAttemptWithoutAResponseKeepsWhatIsShown() async throws {
        var installed = try await Installed()
        let server = installed.world.server
        let content = Array(repeating: UInt8(7), count: 1 << 20)
        server.answer("/file", with: .content(content).cut(after: 300_000), .dropped)
        try await withDaemon(&installed) { installed, client in
            #expect(try await installed.run("tasks", "add", server.url("/file")).status == 0)
            let id = try #require(try await client.tasks().first?.id)
            try await poll("no attempt ends without a response") {
                let task = try await client.task(id)
                return task.attempts >= 3 && task.state == .waiting
            }
            let task = try await client.task(id)
            #expect(task.bytesReceived == ByteCount(300_000), "\(task)")
            #expect(task.bytesExpected == ByteCount(content.count), "\(task)")
        }
    }

    @Test func endedDownloadsAreClearedAndNothingElse() async throws {
        var installed = try await Installed()
        let server = installed.world.server
        server.answer("/file", with: .content(Self.content))
        server.answer("/none", with: .status(404))
        server.answer("/slow", with: .content(Self.content).stalled(after: 3))
        try await withDaemon(&installed) { installed, client in
            // A session of an application, with a download that has ended, too.
            try await client.makeSession("application", configuration: SessionConfiguration())
            let other = TransferRequest(token: "t", kind: .download, url: server.url("/file"))
            let foreign = try await client.createTasks([other], in: "application")[0]
            for path in ["/none", "/slow", "/file"] {
                let added = try await installed.run("tasks", "add", server.url(path))
                #expect(added.status == 0, "\(added)")
            }
            let tasks = try await client.tasks(in: "stagepack.tasks")
            let (failed, slow, done) = (tasks[0].id, tasks[1].id, tasks[2].id)
            try await poll("the downloads do not end") {
                let states = try await client.tasks().map { ($0.id, $0.state) }
                let byNumber = Dictionary(uniqueKeysWithValues: states)
                return byNumber[failed] == .failed && byNumber[done] == .completed
                    && byNumber[foreign] == .completed
            }
            let kept = try await installed.run("tasks", "clear")
            #expect(kept.status == 0 && kept.output.isEmpty, "\(kept)")
            let note =
                "1 transfer with a file that was not moved away: \(done); move what is needed, then run "
                + "'stagepack tasks clear --files'\n"
            #expect(kept.error == note, "\(kept)")
            #expect(try await client.tasks().count == 4)

            let list = try await installed.run("tasks", "\(done)").output
            let line = try #require(list.split(separator: "    file: ").last)
            let file = FilePath(String(try #require(line.split(separator: "\n").first)))
            let cleared = try await installed.run("tasks", "clear", "--files")
            #expect(cleared.status == 0 && cleared.error.isEmpty, "\(cleared)")
            for id in [failed, done] { #expect(cleared.output.contains("\(id)  "), "\(cleared)") }
            #expect(!FileStatus.exists(file))
            #expect(try await client.tasks().map(\.id).sorted() == [foreign, slow].sorted())
            // If this test takes longer than the transfer may stall, another attempt waits.
            #expect(try await !client.task(slow).hasEnded)

            let none = try await installed.run("tasks", "clear", "--json")
            #expect(none.status == 0 && none.error.isEmpty, "\(none)")
            let json = none.output.filter { !$0.isWhitespace }
            #expect(json.contains(#""tasks":[]"#), "\(none)")
        }
    }

    @Test func aUserWithTooManyDownloadsLearnsHowToClearThem() async throws {
        var installed = try await Installed()
        let server = installed.world.server
        server.answer("/none", with: .status(404))
        try await withDaemon(&installed, tasksPerUser: 1) { installed, client in
            let added = try await installed.run("tasks", "add", server.url("/none"))
            #expect(added.status == 0, "\(added)")
            try await poll("it does not end") { try await client.tasks().first?.state == .failed }
            let refused = try await installed.run("tasks", "add", server.url("/other"))
            #expect(refused.status == 51, "\(refused)")
            #expect(refused.error.contains("hint: 'stagepack tasks clear'"), "\(refused)")
            #expect(try await installed.run("tasks", "clear").status == 0)
            let again = try await installed.run("tasks", "add", server.url("/other"))
            #expect(again.status == 0, "\(again)")
        }
    }

    /// The test has no daemon, since that would return a transfer that does not exist.
    @Test(arguments: [
        "http://127.0.0.1/a b", "http://127.0.0.1/\u{E9}", "http:///a", "ftp://127.0.0.1/a",
    ])
    func aURLThatTheDaemonRefusesIsAWrongArgument(url: String) async throws {
        let ending = try await Program().run(["tasks", "add", url])
        #expect(ending.status == 64, "\(ending)")
        #expect(ending.error.hasPrefix("stagepack: error: expected a"), "\(ending)")
    }

    /// Shows a transfer that waits for a reason, and expects the words of `stagepack tasks` for it.
    private func expect(_ reason: PendingReason, toBeShownAs text: String) async throws {
        try await withTasks(1) { installed, daemon, _ in
            var event = SessionEvent(.changed, time: .now)
            event.task = daemon.tasks.first?.id
            event.state = .waiting
            event.pendingReasons = [reason]
            daemon.emit(event, in: "s")
            let ending = try await installed.run("tasks")
            let lines = ending.output.split(separator: "\n")
            #expect(lines.contains("    waits: \(text)"), "\(ending)")
        }
    }

    @Test(
        arguments: [
            (.connections, "all connections of the daemon are in use"),
            (.hostConnections, "all connections to its server are in use"),
            (.sessionConnections, "all connections of its session to the server are in use"),
            (.workers, "other packs are staged first"),
            (.content, "another transfer downloads the same content"),
            (.other("antenna"), "other transfers use 'antenna'"),
            (nil, "other transfers run first"),
        ] as [(PendingReason.Resource?, String)]
    )
    func aTransferThatWaitsForAnotherSaysForWhat(
        resource: PendingReason.Resource?,
        text: String
    ) async throws {
        try await expect(PendingReason(.slot, resource: resource), toBeShownAs: text)
    }

    @Test(
        arguments: [
            (nil, "the disk is full"),
            (
                "cannot write '/x': Read-only file system",
                "the disk cannot be written: cannot write '/x': Read-only file system"
            ),
        ] as [(String?, String)]
    )
    func aTransferThatWaitsForTheDiskSaysWhatIsWrongWithIt(
        problem: String?,
        text: String
    ) async throws {
        try await expect(PendingReason(.disk, problem: problem), toBeShownAs: text)
    }

    @Test func aReasonOfANewerDaemonIsShownByItsCode() async throws {
        let text = "the reason 'sunspots' is not known to this version of 'stagepack'"
        try await expect(PendingReason(.other("sunspots")), toBeShownAs: text)
    }

    @Test func watchingEndsWithItsReader() async throws {
        var installed = try await Installed()
        let server = installed.world.server
        try await withDaemon(&installed) { installed, client in
            var watch = installed.world.program
            let program = watch.wrapper.isEmpty ? [try Program.path.string] : watch.wrapper
            watch.wrapper = ["/bin/sh", "-c", #""$@" | head -n 1"#, "sh"] + program
            let ending = try await watch.run(["watch"]) { running in
                try await poll("the shell starts nothing") { try !running.children().isEmpty }
                let numbers = Mutex(0)
                try await poll("it goes on without a reader") {
                    let number = numbers.withLock { number in
                        number += 1
                        return number
                    }
                    let url = server.url("/\(number)")
                    #expect(try await installed.run("tasks", "add", url).status == 0)
                    return try running.children().isEmpty
                }
            }
            #expect(ending.status == 0 && !ending.output.isEmpty, "\(ending)")
        }
    }
}
