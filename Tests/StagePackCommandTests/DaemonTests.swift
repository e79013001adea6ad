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
    @Test func theDaemonFetchesAndTheCommandStages() async throws {
        var installed = try await Installed()
        let pack = try SamplePack.large(try .aurora, version: 1, mebibytes: 4)
        try installed.world.publish(pack)
        let told = try await withDaemon(&installed) { installed, client in
            let ending = try await installed.run("prefetch", "--app", "net.example.wallpaper")
            #expect(ending.status == 0, "\(ending.error)")
            let session = try await client.session("stagepack/net.example.wallpaper")
            let left = try await client.tasks()
            return (session, left, ending.output)
        }
        #expect(try installed.staged() == ["aurora": 1])
        #expect(told.0.lastEvent == 1)
        #expect(told.0.acknowledgedEvent == 1)
        #expect(told.1.isEmpty)
        #expect(installed.world.server.counts(for: pack.path).requests == 1)
        #expect(try installed.names(in: "downloads") == [])
    }

    @Test func whatAKilledCommandWantedIsStagedByTheSessionsHandler() async throws {
        var installed = try await Installed()
        let pack = try SamplePack.large(try .aurora, version: 1, mebibytes: 24)
        try installed.world.publish([pack], rate: 8 << 20)
        try await withDaemon(&installed) { installed, client in
            let server = installed.world.server
            let arguments = ["prefetch", "--app", "net.example.wallpaper"]
            let ending = try await installed.world.program.run(arguments) { running in
                try await poll { server.counts(for: pack.path).bytes > 100_000 }
                running.send(SIGKILL)
            }
            #expect(ending.status == Program.killed)
            #expect(try installed.staged() == [:])
            let session = try await client.session("stagepack/net.example.wallpaper")
            #expect(session.acknowledgedEvent == 0, "\(ending.error)")
            try await poll { try installed.staged() == ["aurora": 1] }
            try await poll { try installed.names(in: "downloads") == [] }
        }
        // Nothing of what had arrived was asked for a second time.
        #expect(installed.world.server.counts(for: pack.path).requests == 1)
    }

    @Test func aConfinedCommandIsServedWithoutAHandler() async throws {
        var installed = try await Installed()
        try installed.world.publish(try SamplePack.large(try .aurora, version: 1, mebibytes: 4))
        let session = try await withDaemon(&installed) { installed, client in
            var confined = installed
            let wrapper = installed.world.program.wrapper
            let program = wrapper.isEmpty ? [try Program.path.string] : wrapper
            confined.world.program.wrapper = ["/usr/bin/setpriv", "--no-new-privs"] + program
            let ending = try await confined.run("prefetch", "--app", "net.example.wallpaper")
            #expect(ending.status == 0, "\(ending.error)")
            return try await client.session("stagepack/net.example.wallpaper")
        }
        #expect(session.lastEvent == 1)
        #expect(session.configuration.handler == nil)
        #expect(try installed.staged() == ["aurora": 1])
    }

    @Test func theDaemonStaysInTheAllowedDomains() async throws {
        var installed = try await Installed()
        let pack = try SamplePack.small(.aurora)
        try installed.world.publish(pack)
        let server = installed.world.server
        let elsewhere = server.url("/elsewhere", host: "localhost")
        server.answer(pack.path, with: .redirect(to: elsewhere))
        server.answer("/elsewhere", with: .content(pack.archive))
        var restrictions = Registration.Restrictions()
        restrictions.downloadDomainAllowList = ["127.0.0.1"]
        installed.registration.restrictions = restrictions
        try installed.install()
        let tasks = try await withDaemon(&installed) { installed, client in
            let ending = try await installed.run("prefetch", "--app", "net.example.wallpaper")
            #expect(ending.status == 21, "\(ending.error)")
            #expect(ending.error.contains("none of the allowed domains"))
            return try await client.session("stagepack/net.example.wallpaper").lastEvent
        }
        // The daemon was asked, and failed for the same reason.
        #expect(tasks == 1)
        #expect(server.requests(for: "/elsewhere").isEmpty)
        #expect(try installed.staged() == [:])
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
        #expect(
            tasks.error == """
                stagepack: error: no daemon listens at '\(installed.socketName)'
                hint: start it: 'systemctl start stagepackd', or 'stagepackd'

                """
        )
    }

    @Test func transfersArePausedResumedAndCancelledByTheirNumbers() async throws {
        var installed = try await Installed()
        let server = installed.world.server
        server.answer("/large", with: Answer.content(Array(repeating: 7, count: 1 << 20)).slow)
        let url = server.url("/large")
        try await withDaemon(&installed) { installed, client in
            try await client.makeSession("maps", configuration: SessionConfiguration())
            let request = TransferRequest(token: "1", kind: .download, url: url)
            let id = try #require(try await client.createTasks([request], in: "maps").first)
            let paused = try await installed.run("pause", "\(id)")
            #expect(paused.status == 0, "\(paused.error)")
            #expect(try await client.task(id).holds == [Hold(.pausedByUser)])
            let why = try await installed.run("why")
            #expect(why.output.contains("it was paused ('stagepack resume' lets it go on)"))
            #expect(try await installed.run("resume", "\(id)").status == 0)
            #expect(try await client.task(id).holds.contains(Hold(.pausedByUser)) == false)
            #expect(try await installed.run("cancel", "--session", "maps").status == 0)
            #expect(try await client.task(id).state == .cancelled)
            let unknown = try await installed.run("cancel", "4711")
            #expect(unknown.status == 51)
            #expect(unknown.error == "stagepack: error: there is no task 4711\n")
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
            try await poll("it never waits for another attempt") {
                try await client.task(id).holds.contains { $0.reason == .backoff }
            }
            let hold = try #require(try await client.task(id).holds.first)
            #expect(hold.problem?.contains("503") ?? false, "\(hold)")
            let tasks = try await installed.run("tasks", "\(id)")
            let why = try await installed.run("why")
            for ending in [tasks, why] {
                let line = ending.output.split(separator: "\n").first { $0.contains("waits: ") }
                #expect(line?.contains("an attempt failed") ?? false, "\(ending)")
                #expect(line?.contains("503") ?? false, "\(ending)")
                #expect(!ending.output.contains("last problem"))
            }
        }
    }

    @Test func theDaemonOrdersPacksAsTheirPublisherDoes() async throws {
        var installed = try await Installed()
        let priorities: [(String, Int)] = [
            ("usual", 0), ("last", .min), ("third", 5000), ("first", .max), ("second", 6000),
        ]
        let packs = try priorities.map { id, priority in
            var pack = try SamplePack.small(try PackID(id))
            pack.pack.priority = priority
            return pack
        }
        try installed.world.publish(packs)
        for pack in packs { installed.world.server.answer(pack.path, with: .status(511)) }
        let tasks = try await withDaemon(&installed) { installed, client in
            let ending = try await installed.run("prefetch", "--app", "net.example.wallpaper")
            #expect(ending.status == 23, "\(ending.error)")
            return try await client.tasks()
        }
        let order = tasks.sorted { $0.request.priority ?? 0 > $1.request.priority ?? 0 }
        #expect(order.map(\.request.description) == ["first", "second", "third", "usual", "last"])
    }

    @Test func aCommandThatWaitsForTheDaemonNamesTheLastFailure() async throws {
        var installed = try await Installed()
        let pack = try SamplePack.small(.aurora)
        try installed.world.publish(pack)
        let server = installed.world.server
        server.answer(pack.path, with: [.status(503), .status(511)])
        try await withDaemon(&installed) { installed, _ in
            let ending = try await installed.run(
                "prefetch",
                "--app",
                "net.example.wallpaper",
                "--progress",
                "json"
            )
            let failure = "'\(server.url(pack.path))' was answered with status 503"
            let line = #""waitingFor":"\#(failure)""#
            #expect(ending.error.contains(line), "\(ending.error)")
            #expect(ending.status == 23, "\(ending.error)")
            #expect(ending.error.contains("the network may want a login"), "\(ending.error)")
        }
    }
}

extension Answer {
    /// The answer at 64 KiB a second.
    fileprivate var slow: Answer { with { $0.rate = 64 << 10 } }
}

extension Installed {
    /// The names in a directory of the container.
    fileprivate func names(in name: String) throws -> [String] {
        let directory = try Directory.open(container).directory(FilePath(name))
        return try directory?.entries().map(\.name.string).sorted() ?? []
    }
}

/// Runs the daemon beside `body`, in the mount namespace that the program sees; it must not take more
/// memory than a program may.
func withDaemon<Value: Sendable>(
    _ installed: inout Installed,
    _ body: @escaping @Sendable (Installed, ControlClient) async throws -> Value
) async throws -> Value {
    let directory = installed.world.directory.path
    let socket = installed.socket
    installed.allowDaemon()
    _ = try Directory.make(socket.removingLastComponent())
    let settings = #"{"relaunchDelay": 0.2, "settlingTime": 0, "busAddress": "unix:path=/nowhere"}"#
    try installed.world.directory.write(
        Array(settings.utf8),
        to: "stagepackd.json",
        durably: false
    )
    var daemon = installed.world.program
    let program = try Program.path.removingLastComponent().appending("stagepackd").string
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
        defer { running.send(SIGTERM) }
        try await poll { FileStatus.exists(socket) }
        result.yield(try await body(copy, ControlClient(path: socket.string)))
        #expect(try running.peakMemory() <= Program.memoryLimit)
    }
    #expect(ending.status == 0, "\(ending.error)")
    for await value in results { return value }
    throw NeverHappened()
}
