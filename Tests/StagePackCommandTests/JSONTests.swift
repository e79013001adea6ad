import FoundationEssentials
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Output for programs: members are never renamed or omitted.
@Suite(.server, .directory)
struct JSONTests {
    private struct Failure: Decodable, Equatable {
        var message: String
        var hint: String?
        var retry: String
        var status: Int
    }

    private struct Staged: Decodable {
        struct Pack: Decodable {
            var id, policy, outcome, reason: String
            var version, downloadSize, installedSize: Int
            var transferred, reused: Int?
            var source: String?
            var error: Failure?
        }

        var container, application: String
        var revision, transferred: Int
        var packs: [Pack]
        var manifestProblem: Failure?
    }

    private struct Runs: Decodable {
        var runs: [Staged]
    }

    private struct Plans: Decodable {
        var plans: [Staged]
    }

    private struct Status: Decodable {
        struct Manifest: Decodable {
            var application, url, receivedAt: String
            var revision: Int
        }

        struct Pack: Decodable {
            var id, state: String
            var policy, stagedAt, source: String?
            var version, offeredVersion, installedSize, downloadSize, downloaded: Int?
        }

        struct Container: Decodable, Equatable {
            var path: String
            var isPresent: Bool
        }

        var containers: [Container]
        var manifests: [Manifest]
        var packs: [Pack]
    }

    private struct FailureAlone: Decodable {
        var error: Failure
    }

    private struct StagedPath: Decodable, Equatable {
        var pack, path: String
    }

    private func decode<Value: Decodable>(_ type: Value.Type, _ text: String) throws -> Value {
        try JSONDecoder().decode(type, from: Data(text.utf8))
    }

    /// Publishes a pack, an on-demand pack, and a pack whose archive the server lacks.
    private func world() throws -> (World, [SamplePack]) {
        var world = try World()
        let ids = try ["aurora", "borealis", "corona"].map { try PackID($0) }
        let packs = [
            try SamplePack.small(ids[0]), try .small(ids[1], policy: .onDemand),
            try .small(ids[2], policy: .prefetch([.firstInstallation])),
        ]
        try world.publish(packs)
        world.server.answer(packs[2].path, with: .status(404))
        return (world, packs)
    }

    @Test func prefetchPlanAndStatusHaveTheirMembers() async throws {
        let (world, packs) = try world()
        let plans = try decode(Plans.self, try await world.run("plan", "--json").output)
        let planned = try #require(plans.plans.first)
        #expect(planned.packs.map(\.id) == ["aurora", "corona", "borealis"])
        #expect(planned.packs.map(\.outcome) == ["planned", "planned", "left"])
        #expect(try world.staged(.aurora) == nil)

        let ending = try await world.run("prefetch", "--json", "--attempts", "1")
        #expect(ending.status == 21)
        #expect(ending.error == "")
        let staged = try #require(try decode(Runs.self, ending.output).runs.first)
        let size = packs[0].archive.count
        #expect(staged.container == world.container.string)
        #expect(staged.application == "net.example.wallpaper")
        #expect(staged.revision == 1)
        #expect(staged.transferred == size)
        #expect(staged.packs.map(\.outcome) == ["staged", "failed", "left"])
        #expect(staged.packs[0].transferred == size)
        #expect(staged.packs[0].reused == 0)
        #expect(staged.packs[0].source == world.server.url(packs[0].path))
        #expect(staged.packs[1].error == missing(world, packs[2]))

        let status = try decode(Status.self, try await world.run("status", "--json").output)
        #expect(status.containers == [.init(path: world.container.string, isPresent: true)])
        #expect(status.manifests.map(\.url) == [world.manifestURL])
        #expect(status.packs.map(\.id) == ["aurora", "borealis", "corona"])
        #expect(status.packs.map(\.state) == ["staged", "missing", "missing"])
        #expect(status.packs.map(\.policy) == ["essential", "onDemand", "prefetch"])
        #expect(status.packs[0].version == 1)
        #expect(status.packs[0].stagedAt?.hasSuffix("Z") == true)
    }

    private func missing(_ world: World, _ pack: SamplePack) -> Failure {
        Failure(
            message: "pack '\(pack.pack.id)': '\(world.server.url(pack.path))' was answered with "
                + "status 404",
            hint: "tell the publisher: the server does not have the file",
            retry: "later",
            status: 21
        )
    }

    @Test func loadAndPathPrintThePathOrTheFailure() async throws {
        let (world, packs) = try world()
        let ending = try await world.run("load", "corona", "--json", "--attempts", "1")
        #expect(ending.status == 21)
        #expect(ending.error == "")
        #expect(try decode(FailureAlone.self, ending.output).error == missing(world, packs[2]))

        let loaded = try decode(
            StagedPath.self,
            try await world.succeed("load", "aurora", "--json")
        )
        #expect(loaded.pack == "aurora")
        #expect(loaded.path.hasSuffix("/content"))
        let path = try await world.succeed("path", "aurora", "--json")
        #expect(try decode(StagedPath.self, path) == loaded)
        let unstaged = try await world.run("path", "borealis", "--json")
        #expect(unstaged.status == 2)
        #expect(try decode(FailureAlone.self, unstaged.output).error.status == 2)
    }

    @Test(.apart) func aDeadlineIsTheStatusOfThePackToo() async throws {
        let (world, packs) = try world()
        world.server.answer(packs[0].path, with: Answer.content(packs[0].archive).stalled(after: 9))
        let arguments = ["fetch", "aurora", "--json"] + world.source
        let ending = try await world.program.run(arguments, deadline: 4) { ending in
            // Without a manifest, the output has no runs.
            let runs = try? decode(Runs.self, ending.output).runs
            return runs?.first?.packs.isEmpty == false
        }
        #expect(ending.status == 75)
        let staged = try #require(try decode(Runs.self, ending.output).runs.first)
        #expect(staged.packs.first?.error?.status == 75)
    }

    /// Requested progress is printed with '--quiet', too: in JSON every line is an object of the schema.
    @Test func askedProgressIsPrintedThoughQuiet() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        let json = try await world.run("load", "aurora", "--quiet", "--progress", "json")
        #expect(json.status == 0, "\(json)")
        let schemas = try OutputSchemas()
        var manifests: [String] = []
        var packs: Set<String> = []
        for line in json.error.split(separator: "\n") {
            let value = try JSONNode(json: Array(line.utf8)).value
            let shape = value["pack"] == nil ? "RunProgress" : "PackProgress"
            #expect(try schemas.faults(of: value, as: shape) == [], "\(line)")
            if let pack = value["pack"]?.string { packs.insert(pack) }
            if value["event"]?.string == "manifest" { manifests += [value["url"]?.string ?? ""] }
        }
        #expect(packs == ["aurora"])
        #expect(manifests.contains(world.manifestURL), "\(json.error)")
        try await world.succeed("remove", "aurora", "--quiet")
        let lines = try await world.run("load", "aurora", "--quiet", "--progress", "lines")
        #expect(lines.error.contains("aurora: staged ("), "\(lines)")
        try await world.succeed("remove", "aurora", "--quiet")
        #expect(try await world.run("load", "aurora", "--quiet").error == "")
    }

    /// Each manifest of a run has progress, even if a download stalls; the last line of each pack has all of its bytes.
    @Test func everyManifestOfARunHasItsProgress() async throws {
        var world = try World()
        let first = try SamplePack.large(.aurora, version: 1, mebibytes: 4)
        let second = try SamplePack.large(try PackID("borealis"), version: 1, mebibytes: 4)
        let other = try ApplicationID("net.example.maps")
        func publish(_ packs: [SamplePack], revision: Int) {
            let manifest = Manifest(
                application: other,
                revision: revision,
                packs: packs.map(\.pack)
            )
            world.server.answer("/other.json", with: .content(manifest.json()))
        }
        let container = ["--container", world.container.string]
        try world.publish([])
        publish([], revision: 1)
        try await world.succeed("prefetch", "--quiet")
        let manifest = ["--manifest", world.server.url("/other.json")]
        let known = try await world.program.run(["prefetch", "--quiet"] + container + manifest)
        #expect(known.status == 0, "\(known)")
        try world.publish(first)
        publish([second], revision: 2)
        let gates = [Gate(), Gate()]
        for (pack, gate) in zip([first, second], gates) {
            let answer = Answer.content(pack.archive).held(after: 1 << 20, until: gate)
            world.server.answer(pack.path, with: answer)
        }
        let log = world.directory.path.appending("progress")
        world.program.wrapper = [
            "/bin/sh", "-c", #"exec "$@" 2>"$0""#, log.string, try Program.path.string,
        ]
        struct Line: Decodable {
            var pack: String
            var received, downloadSize: Int
        }
        @Sendable func lines(of pack: SamplePack) throws -> [Line] {
            // The last line may be incomplete.
            let lines = try text(of: log).split(separator: "\n", omittingEmptySubsequences: false)
            return try lines.dropLast().filter { $0.contains("\"pack\"") }
                .map { try JSONDecoder().decode(Line.self, from: Data($0.utf8)) }
                .filter { $0.pack == pack.pack.id.text }
        }
        let arguments = ["prefetch", "--progress", "json"] + container
        let ending = try await world.program.run(arguments) { _ in
            // The manifests arrive one after the other, in the order of their applications.
            for (pack, gate) in zip([second, first], gates.reversed()) {
                try await poll("'\(pack.path)' has no line with a megabyte") {
                    try lines(of: pack).contains { $0.received == 1 << 20 }
                }
                gate.open()
            }
        }
        #expect(ending.status == 0, "\(ending)")
        for pack in [first, second] {
            let last = try lines(of: pack).last
            #expect(last?.received == last?.downloadSize && last != nil)
        }
    }
}
