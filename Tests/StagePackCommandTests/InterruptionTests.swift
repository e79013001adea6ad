import FoundationEssentials
import Glibc
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@Suite(.apart, .server, .directory)
struct InterruptionTests {
    /// Serves 2 MiB of a pack of 8 MiB and then stalls, and runs the program; `body` runs once bytes are in a
    /// partial file.
    private func begin(
        _ arguments: [String],
        body: @escaping @Sendable (Program.Running) -> Void
    ) async throws -> (World, SamplePack, Program.Ending) {
        var world = try World()
        let pack = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        try world.publish(pack)
        world.server.answer(pack.path, with: Answer.content(pack.archive).stalled(after: 2 << 20))
        let downloads = world.container.appending("downloads")
        let ending = try await world.program.run(arguments + world.source) { running in
            try await poll { partSize(below: downloads) > 1 << 20 }
            body(running)
        }
        return (world, pack, ending)
    }

    /// Serves 2 MiB of a pack of 8 MiB and then stalls, and runs the program with a deadline, by which these bytes are in a
    /// partial file.
    private func beginWithDeadline(
        _ arguments: [String]
    ) async throws -> (World, SamplePack, Program.Ending) {
        // On a busy machine, the bytes may arrive only after a short deadline.
        for seconds in [4, 16, 64] {
            var world = try World()
            var pack = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
            pack.pack.archive?.url = "packs/\(seconds).tar.zst"
            try world.publish(pack)
            let answer = Answer.content(pack.archive).stalled(after: 2 << 20)
            world.server.answer(pack.path, with: answer)
            let limit = ["--deadline", "\(seconds)"]
            let ending = try await world.program.run(arguments + limit + world.source)
            if partSize(below: world.container.appending("downloads")) >= 2 << 20 {
                return (world, pack, ending)
            }
            if FileStatus.exists(world.container) { try world.directory.removeTree("container") }
        }
        throw NeverHappened()
    }

    @Test(arguments: [SIGINT, SIGTERM])
    func aSignalEndsTheRunAndTheNextOneContinues(signal: Int32) async throws {
        let arguments = ["prefetch", "--quiet"]
        var (world, pack, ending) = try await begin(arguments) { $0.send(signal) }
        let error = """
            stagepack: error: pack 'aurora': interrupted
            hint: run the same command again: it resumes downloads from servers that support ranges

            """
        #expect(ending == Program.Ending(status: 130, output: "", error: error))
        try await expectContinuation(&world, pack)
    }

    @Test(arguments: ["prefetch", "fetch aurora", "load aurora"])
    func aDeadlineEndsTheRunAndTheNextOneContinues(command: String) async throws {
        let arguments = command.split(separator: " ").map(String.init) + ["--quiet"]
        var (world, pack, ending) = try await beginWithDeadline(arguments)
        let error = """
            stagepack: error: pack 'aurora': the deadline passed: 2.1 MB of 8.4 MB had arrived from \
            'SERVER\(pack.path)'
            hint: run the same command again: it resumes downloads from servers that support ranges

            """
        #expect(ending.status == 75 && ending.output == "")
        #expect(world.masked(ending.error) == error)
        let why = try await world.succeed("why", "aurora")
        // A deadline that a person chose is no fault of the pack, so it does not count.
        let runs = command == "prefetch" ? "1 run, " : ""
        let tried = "tried: \(runs)pack 'aurora': the deadline passed: 2.1 MB of 8.4 MB"
        #expect(why.contains(tried), "\(why)")
        #expect(!why.contains("interrupted"))
        try await expectContinuation(&world, pack)
        let later = try await world.succeed("why", "aurora")
        #expect(later.contains("aurora, version 1: staged, it was missing"))
        #expect(!later.contains("not staged yet"))
    }

    @Test func bytesOfAnInterruptedPackCountForTheRun() async throws {
        struct Output: Decodable {
            struct Run: Decodable {
                var transferred: Int
                var packs: [Pack]
            }
            struct Pack: Decodable { var transferred: Int? }
            var runs: [Run]
        }
        let arguments = ["fetch", "aurora", "--quiet", "--json"]
        let (_, _, ending) = try await begin(arguments) { $0.send(SIGINT) }
        #expect(ending.status == 130)
        let output = try JSONDecoder().decode(Output.self, from: Data(ending.output.utf8))
        let run = try #require(output.runs.first)
        #expect(run.transferred > 1 << 20)
        #expect(run.packs.map(\.transferred) == [run.transferred])
    }

    @Test func bytesOfEarlierRunsCountAsArrived() async throws {
        let (world, pack, _) = try await beginWithDeadline(["prefetch", "--quiet"])
        let answer = Answer.content(pack.archive).stalled(after: 1 << 20)
        world.server.answer(pack.path, with: answer)
        let downloads = world.container.appending("downloads")
        let arguments = ["prefetch", "--quiet"] + world.source
        let second = try await world.program.run(arguments, deadline: 4) { _ in
            partSize(below: downloads) >= 3 << 20
        }
        #expect(second.status == 75)
        let message = "the deadline passed: 3.1 MB of 8.4 MB had arrived from"
        #expect(second.error.contains(message), "\(second.error)")
    }

    private func expectContinuation(_ world: inout World, _ pack: SamplePack) async throws {
        #expect(try world.staged(.aurora) == nil)
        #expect(try world.names(in: "staging") == [])
        try world.publish(pack)
        try await world.succeed("prefetch", "--quiet")
        #expect(try world.staged(.aurora) == StagedFiles(pack))
        let starts = world.server.requests(for: pack.path).map { $0.rangeStart ?? 0 }
        #expect(starts.count == 2)
        #expect(starts.last ?? 0 > 1 << 20)
    }

    @Test func aManifestThatNeverComesIsInterruptedToo() async throws {
        let world = try World()
        world.server.answer("/manifest.json", with: Answer(content: [1]).stalled(after: 0))
        let ending = try await world.run("prefetch", "--deadline", "0.5")
        let error = """
            stagepack: error: the deadline passed while waiting for the manifest at \
            '\(world.manifestURL)'
            hint: run the same command again: it resumes downloads from servers that support ranges

            """
        #expect(ending == Program.Ending(status: 75, output: "", error: error))
    }

    @Test func aDeadlineEndsTheRunsOfAllApplications() async throws {
        let installed = try await Installed()
        try installed.install()
        var other = installed
        other.registration.application = try ApplicationID("net.example.zebra")
        other.registration.group = try ApplicationGroupID("net.example.zebra")
        try other.install()
        installed.world.server.answer(
            "/manifest.json",
            with: Answer(content: [1]).stalled(after: 0)
        )
        let ending = try await installed.run("prefetch", "--all", "--deadline", "4")
        #expect(ending.status == 75)
        try await installed.world.server.settle()
        #expect(installed.world.server.requests.count == 1)
        let left = "the deadline left no time for 'net.example.zebra'\n"
        #expect(ending.error.contains(left), "\(ending)")
        // Nothing is stored for the application whose manifest was not requested.
        let why = try await installed.run("why", "--app", "net.example.zebra")
        #expect(!why.output.contains("the deadline passed"), "\(why)")
        let all = try await installed.run("why")
        #expect(all.output.contains("net.example.zebra in "), "\(all)")
        #expect(all.output.contains("\n  no run has ended yet; "), "\(all)")
    }

    @Test func aSilentServerTakesItsShareOfTheDeadlineAndWhatOthersLeave() async throws {
        let installed = try await Installed()
        let silent = Answer(content: [1]).stalled(after: 0)
        installed.world.server.answer("/manifest.json", with: silent)
        let pack = try SamplePack.small(.aurora)
        try installed.addOther(offering: [pack])
        let server = installed.world.server
        let ending = try await installed.world.program.run(["prefetch", "--all"], deadline: 14) {
            _ in
            try installed.staged() == ["aurora": 1]
                && server.requests(for: "/manifest.json").count > 1
        }
        #expect(ending.status == 75)
        #expect(ending.error.contains("the deadline passed while waiting for the manifest at"))
        #expect(!ending.error.contains("left no time"), "\(ending)")
        #expect(try installed.staged() == ["aurora": 1])
        #expect(server.requests(for: "/manifest.json").count > 1)
    }

    /// Less time than the least share of an application suffices for applications with nothing to do.
    @Test func aShortDeadlineIsEnoughForAllCompleteApplications() async throws {
        var installed = try await Installed()
        let pack = try SamplePack.small(.aurora)
        try installed.world.publish(pack)
        try installed.addOther(offering: [try SamplePack.small(try PackID("lions"))])
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        // A busy machine may take longer, but not each time.
        try await poll("the time is never enough") {
            try await installed.run("prefetch", "--all", "--deadline", "4.9").status == 0
        }
    }

    @Test func runsWithADeadlineReachOneApplicationAfterTheOther() async throws {
        let installed = try await Installed()
        let silent = Answer(content: [1]).stalled(after: 0)
        installed.world.server.answer("/manifest.json", with: silent)
        let pack = try SamplePack.small(.aurora)
        try installed.addOther(offering: [pack])
        let first = try await installed.run("prefetch", "--all", "--json", "--deadline", "4")
        #expect(first.status == 75)
        let left = "the deadline left no time for 'net.example.zoo'"
        #expect(first.output.contains(left), "\(first)")
        #expect(try installed.staged() == [:])
        // On a busy machine, the other application may need several runs.
        try await poll("the other application is never reached") {
            let later = try await installed.run("prefetch", "--all", "--deadline", "4")
            #expect(later.status == 75)
            return try installed.staged() == ["aurora": 1]
        }
    }

    @Test func doctorPrintsTheChecksOfTheMachineBeforeItAsksASilentServer() async throws {
        let installed = try await Installed()
        let server = installed.world.server
        server.answer("/manifest.json", with: Answer(content: [1]).stalled(after: 0))
        let ending = try await installed.world.program.run(["doctor", "--online"]) { running in
            try await poll { !server.requests(for: "/manifest.json").isEmpty }
            running.send(SIGINT)
        }
        #expect(ending.status == 130)
        #expect(ending.output.contains("ok: registration of net.example.wallpaper: "), "\(ending)")
        #expect(!ending.output.contains("server of"), "\(ending)")
        let late = try await installed.run("doctor", "--online")
        #expect(late.status == 3)
        let finding =
            "server of net.example.wallpaper: the manifest at '\(installed.world.manifestURL)' did not come "
            + "within 30 seconds\n"
        #expect(late.output.contains(finding), "\(late)")
        #expect(late.output.hasSuffix("found\n"), "\(late)")
    }

    @Test func aDeadlineIsRememberedWhereNoManifestCame() async throws {
        let installed = try await Installed()
        try installed.install()
        installed.world.server.answer(
            "/manifest.json",
            with: Answer(content: [1]).stalled(after: 0)
        )
        let ending = try await installed.run(
            "prefetch",
            "--app",
            installed.registration.application.text,
            "--deadline",
            "4"
        )
        #expect(ending.status == 75)
        let why = try await installed.run("why", "--app", installed.registration.application.text)
        #expect(
            why.output.contains("problem: the deadline passed while waiting for the manifest at")
        )
    }
}
