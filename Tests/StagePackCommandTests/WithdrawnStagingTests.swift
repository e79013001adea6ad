import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Stagings that the daemon must not carry out any more: of removed packs, and of a command that withdraws its own.
@Suite(.apart, .server, .directory, .timeLimit(.minutes(10)))
struct WithdrawnStagingTests {
    @Test(arguments: StagingWorld.Kind.allCases)
    func aRemovedPackIsNotBroughtAgain(_ kind: StagingWorld.Kind) async throws {
        let gate = Gate()
        let world = try await StagingWorld(kind, sending: .held(gate))
        try await withDaemon(world) { client in
            let id = try await world.ask(client)
            try await poll("no worker begins") { try await client.task(id).state == .running }
            try await poll("nothing arrives") { world.bytesReceived > 0 }
            let removed = try await world.installed.run(
                "remove",
                world.pack,
                "--app",
                "net.example.wallpaper"
            )
            #expect(removed.status == 0, "\(removed)")
            let line = "\(world.pack): removed; transfer \(id) was cancelled\n"
            #expect(removed.output == line, "\(removed)")
            gate.open()
            try await poll("the session stays") { try await client.sessions().isEmpty }
            #expect(try world.workers().isEmpty)
        }
        #expect(try world.installed.staged() == [:])
        let litter = try world.litter()
        #expect(litter == [])
    }

    @Test func theOtherPacksOfATransferStayOrdered() async throws {
        let world = try await StagingWorld(.archive)
        try world.speedUp()
        #expect(try await world.fetch().status == 0)
        let staged = try await world.installed.run(
            "path",
            world.pack,
            "--app",
            "net.example.wallpaper"
        )
        // The container's path in the output of the program.
        let location = try #require(staged.output.ranges(of: "/net.example/").last)
        let container = String(staged.output[..<location.upperBound].dropLast())
        try await withDaemon(world) { client in
            let id = try await client.stage([world.pack, "other"], of: world.installed) { job in
                // Nothing listens there: the task waits, so that the test can inspect it.
                job.manifests = ["http://127.0.0.1:9/manifest.json"]
                job.application = nil
                job.container = container
            }
            let elsewhere = try await client.stage([world.pack], of: world.installed, session: "2")
            {
                job in
                job.manifests = ["http://127.0.0.1:9/manifest.json"]
                job.application = nil
                job.container = "\(container)-other"
            }
            let removed = try await world.installed.run(
                "remove",
                world.pack,
                "--app",
                "net.example.wallpaper",
                "--json"
            )
            #expect(removed.status == 0, "\(removed)")
            let json = removed.output.filter { !$0.isWhitespace }
            #expect(json.contains("\"transfersCancelled\":[\(id)]"), "\(removed)")
            try await poll("the transfer stays") {
                try await client.tasks().allSatisfy { $0.id != id }
            }
            let tasks = try await client.tasks()
            let rest = tasks.filter { $0.id != elsewhere }
            #expect(rest.map(\.request.staging?.packs) == [["other"]], "\(tasks)")
            #expect(tasks.contains { $0.id == elsewhere })
        }
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func aCommandWithdrawsItsTransfer(_ kind: StagingWorld.Kind) async throws {
        let gate = Gate()
        let world = try await StagingWorld(kind, sending: .held(gate))
        try await withDaemon(world) { client in
            let program = world.installed.world.program
            let fetch = ["fetch", world.pack, "--app", "net.example.wallpaper"]
            let ending = try await program.run(fetch + ["--withdraw"]) { running in
                try await poll("nothing arrives") { world.bytesReceived > 0 }
                running.send(SIGINT)
            }
            #expect(ending.status == 130, "\(ending)")
            #expect(!ending.error.contains("the daemon continues it"), "\(ending)")
            try await poll("the session stays") { try await client.sessions().isEmpty }
            #expect(try await client.tasks().isEmpty)

            // Without --withdraw, the daemon continues the transfer after SIGINT.
            let earlier = world.contentRequests
            let left = try await program.run(fetch) { running in
                try await poll("no task is there") { try await !client.tasks().isEmpty }
                // The bytes of the first command stay.
                try await poll("no request comes") { world.contentRequests > earlier }
                running.send(SIGINT)
            }
            #expect(left.status == 130 && left.error.contains("the daemon continues it"), "\(left)")
            let id = try #require(try await client.tasks().first?.id)
            let hint =
                "hint: the daemon continues it: run the same command again to wait for it, or "
                + "'stagepack cancel \(id)' to end it\n"
            #expect(left.error.hasSuffix(hint), "\(left)")
            let why = try await world.installed.run("why", world.pack)
            #expect(why.output.contains("again: by the daemon, as transfer \(id)\n"), "\(why)")
            gate.open()
            try await world.wait(forVersion: 1)
        }
    }

    /// The transfer that continues an interrupted command is named in its progress and in its failure.
    @Test func theTransferThatTheDaemonContinuesIsNamedInJSON() async throws {
        let gate = Gate()
        let world = try await StagingWorld(.archive, sending: .held(gate))
        try await withDaemon(world) { client in
            let program = world.installed.world.program
            let words = [world.pack, "--app", "net.example.wallpaper", "--json", "--quiet"]
            let load = ["load"] + words + ["--progress", "json"]
            let ending = try await program.run(load) { running in
                try await poll("no task is there") { try await !client.tasks().isEmpty }
                try await poll("nothing arrives") { world.bytesReceived > 0 }
                running.send(SIGINT)
            }
            #expect(ending.status == 130, "\(ending)")
            let task = try #require(try await client.tasks().first?.id)
            let id = Int(task)
            let schemas = try OutputSchemas()
            let failure = try JSONNode(json: Array(ending.output.utf8)).value
            #expect(failure["error"]?["transfer"]?.integer == id, "\(ending)")
            #expect(try schemas.faults(of: failure, as: "error") == [])
            let hint = failure["error"]?["hint"]?.string ?? ""
            #expect(hint.contains("'stagepack cancel \(task)'"), "\(ending)")
            let lines = try ending.error.split(separator: "\n")
                .map { try JSONNode(json: Array($0.utf8)).value }
            let line = try #require(lines.first { $0["event"]?.string == "leftToDaemon" })
            #expect(line["transfer"]?.integer == id, "\(ending)")
            #expect(try schemas.faults(of: line, as: "RunProgress") == [])

            let fetch = ["fetch"] + words
            try await poll("no worker continues it") { world.contentRequests >= 2 }
            let fetched = try await program.run(fetch) { running in
                // The daemon's response may be in transit, and a worker takes time to end.
                try await poll("the daemon has no other task") {
                    try await client.tasks().contains { $0.id != task }
                }
                running.send(SIGINT)
            }
            #expect(fetched.status == 130, "\(fetched)")
            let next = try #require(try await client.tasks().first?.id)
            let result = try JSONNode(json: Array(fetched.output.utf8)).value
            guard case .array(let runs)? = result["runs"] else { throw NeverHappened() }
            #expect(runs.map { $0["transfer"]?.integer } == [Int(next)], "\(fetched)")
            gate.open()
            try await world.wait(forVersion: 1)
        }
    }

    @Test func anInterruptedFetchIsNoFailureOfThePack() async throws {
        let gate = Gate()
        let world = try await StagingWorld(.archive, sending: .held(gate))
        defer { gate.open() }
        let ending = try await world.fetch { running in
            try await poll("nothing arrives") { world.bytesReceived > 0 }
            running.send(SIGINT)
        }
        #expect(ending.status == 130, "\(ending)")
        let why = try await world.installed.run("why", world.pack, "--json")
        let json = why.output.filter { !$0.isWhitespace }
        #expect(json.contains("\"failures\":0,"), "\(why)")
        #expect(json.contains("\"problem\":{"), "\(why)")
        // No later run fetches the pack.
        let text = try await world.installed.run("why", world.pack)
        #expect(text.output.contains("again: when it is asked for\n"), "\(text)")
    }
}
