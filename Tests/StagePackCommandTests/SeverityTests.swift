import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Commands with several failed runs: all failures are printed, and the most severe one determines the status.
@Suite(.apart, .server, .directory, .mountNamespace)
struct SeverityTests {
    private struct Output: Decodable {
        struct Failure: Decodable { var status: Int32 }
        struct Run: Decodable {
            struct Pack: Decodable {
                var id: String
                var error: Failure?
            }
            var application: String
            var packs: [Pack]
        }
        var error: Failure?
        var failures: [Failure]?
        var runs: [Run]?
    }

    private func decoded(_ ending: Program.Ending) throws -> Output {
        try JSONDecoder().decode(Output.self, from: Data(ending.output.utf8))
    }

    /// Applications whose names sort before and after the other one's.
    private static let orders = [["org.aa", "org.zz"], ["org.zz", "org.aa"]]

    /// A machine with two applications; the server of the second one is unreachable.
    private func machine(_ names: [String]) async throws -> (Installed, SamplePack) {
        let installed = try await Installed()
        try installed.uninstall()
        let pack = try SamplePack.small(try PackID("of-\(names[0])"))
        var registration = installed.registration
        registration.application = try ApplicationID(names[0])
        registration.manifestURLs = [installed.world.server.url("/first.json")]
        let manifest = Manifest(
            application: registration.application,
            revision: 1,
            packs: [pack.pack]
        )
        installed.world.server.answer("/first.json", with: .content(manifest.json()))
        installed.world.server.answer(pack.path, with: .content(pack.archive))
        try installed.write(registration.json(), to: "\(names[0]).json")
        registration.application = try ApplicationID(names[1])
        registration.manifestURLs = ["http://127.0.0.1:9/manifest.json"]
        try installed.write(registration.json(), to: "\(names[1]).json")
        return (installed, pack)
    }

    private static let command = ["prefetch", "--all", "--attempts", "1"]

    @Test(arguments: orders)
    func anInvalidRegistrationIsMoreThanAServerThatIsDown(names: [String]) async throws {
        let (installed, _) = try await machine(names)
        try installed.write(Array("{}".utf8), to: "\(names[0]).json")
        let ending = try await installed.world.program.run(Self.command)
        #expect(ending.status == 11, "\(ending)")
        #expect(ending.error.contains("\(names[0]).json"), "\(ending)")
        #expect(ending.error.contains("127.0.0.1:9"), "\(ending)")
        let json = try await installed.world.program.run(Self.command + ["--json"])
        let output = try decoded(json)
        #expect(json.status == 11)
        #expect(output.error?.status == 11)
        #expect(output.failures?.map(\.status).sorted() == [10, 11])
        let strict = ["prefetch", "--all", "--hook", "--strict", "--attempts", "1"]
        #expect(try await installed.world.program.run(strict).status == 11)
    }

    @Test(arguments: orders)
    func aDamagedPackIsMoreThanAServerThatIsDown(names: [String]) async throws {
        let (installed, pack) = try await machine(names)
        let damaged = pack.archive.map { $0 ^ 1 }
        installed.world.server.answer(pack.path, with: .content(damaged))
        let ending = try await installed.world.program.run(Self.command)
        #expect(ending.status == 22, "\(ending)")
        #expect(ending.error.contains("stagepack: error: pack 'of-\(names[0])': "), "\(ending)")
        #expect(ending.error.contains("127.0.0.1:9"), "\(ending)")
        let json = try await installed.world.program.run(Self.command + ["--json"])
        let output = try decoded(json)
        #expect(json.status == 22)
        #expect(output.error?.status == 22)
        #expect(output.failures?.map(\.status) == [10])
        #expect(output.runs?.map(\.application) == [names[0]])
        #expect(output.runs?.first?.packs.map(\.error?.status) == [22])
    }

    /// The server of the manifest is down, and a manifest was accepted before: the failure of a pack is more severe than that of
    /// the manifest.
    @Test func aFailureOfAPackIsMoreThanThatOfTheManifest() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        try await world.succeed("fetch", "--manifest-only", "--quiet")
        world.server.answer("/manifest.json", with: .status(500))
        world.server.answer(pack.path, with: .content(pack.archive.map { $0 ^ 1 }))
        let ending = try await world.run("prefetch", "--attempts", "1")
        #expect(ending.status == 22, "\(ending)")
    }

    @Test(arguments: [true, false])
    func theStatusOfLoadIsThatOfItsFailure(isCut: Bool) async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora, policy: .onDemand)
        try world.publish(pack)
        try await world.succeed("fetch", "--manifest-only", "--quiet")
        world.server.answer("/manifest.json", with: .status(500))
        let cut = Answer.content(pack.archive).cut(after: 1000)
        world.server.answer(pack.path, with: isCut ? cut : .status(403))
        let ending = try await world.run("load", "aurora", "--json", "--attempts", "1")
        #expect(ending.status == (isCut ? 10 : 21), "\(ending)")
        #expect(try decoded(ending).error?.status == ending.status, "\(ending)")
    }

    /// The units of systemd treat the failures of the lowest severity as successes.
    @Test func theUnitsKnowWhatLaterRunsComplete() throws {
        let root = FilePath(#filePath).removingLastComponent().removingLastComponent()
            .removingLastComponent()
        for user in ["system", "user"] {
            let path = root.appending("deploy/systemd/\(user)/stagepack-periodic.service")
            let unit = try text(of: path)
            #expect(unit.contains("\nSuccessExitStatus=10 14 20 23 75 130\n"))
        }
    }
}

/// Manifests of several applications in one container.
@Suite(.server, .directory)
struct SeveralManifestsTests {
    /// A container with the manifests and packs of two applications; then the manifest of `broken` became invalid.
    private func world(broken: String, other: String) async throws -> World {
        let world = try World()
        for name in [broken, other] {
            let pack = try SamplePack.small(try PackID("of-\(name)"), policy: .onDemand)
            let manifest = Manifest(
                application: try ApplicationID(name),
                revision: 1,
                packs: [pack.pack]
            )
            world.server.answer("/\(name).json", with: .content(manifest.json()))
            world.server.answer(pack.path, with: .content(pack.archive))
            let options = ["--manifest", world.server.url("/\(name).json")]
            let ending = try await world.program.run(
                ["fetch", "--manifest-only", "--quiet", "--container", world.container.string]
                    + options
            )
            #expect(ending.status == 0, "\(ending)")
        }
        world.server.answer("/\(broken).json", with: .content(Array("{}".utf8)))
        return world
    }

    @Test(arguments: [["org.aa", "org.zz"], ["org.zz", "org.aa"]], ["fetch", "load"])
    func aManifestThatIsNotValidStopsNoOther(names: [String], command: String) async throws {
        let world = try await world(broken: names[0], other: names[1])
        let container = ["--container", world.container.string]
        let ending = try await world.program.run([command, "of-\(names[1])"] + container)
        #expect(ending.status == 0, "\(ending)")
        #expect(try world.staged(try PackID("of-\(names[1])")) != nil)
        let broken = try await world.program.run([command, "of-\(names[0])"] + container)
        #expect(broken.status == 11, "\(broken)")
        let all = try await world.program.run(["prefetch", "--json"] + container)
        #expect(all.status == 11, "\(all)")
        #expect(all.output.contains(#""application" : "\#(names[1])""#), "\(all)")
        #expect(all.output.contains(#""failures" : ["#), "\(all)")
        let hook = try await world.program.run(["prefetch", "--hook", "--strict"] + container)
        #expect(hook.status == 11, "\(hook)")
        #expect(hook.output.contains("\(names[0]).json"), "\(hook)")
    }
}

/// Manifests of a registered application whose URLs have changed.
@Suite(.server, .directory, .mountNamespace)
struct MovedManifestTests {
    private let app = ["--app", "net.example.wallpaper"]

    /// An application with revision 2, whose registration now has another URL, at which `answer` is served.
    private func moved(to answer: (World) throws -> Answer) async throws -> Installed {
        var installed = try await Installed()
        let pack = try SamplePack.small(.aurora)
        installed.world.revision = 2
        try installed.world.publish(pack)
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        installed.world.revision = 1
        installed.world.server.answer("/moved.json", with: try answer(installed.world))
        installed.registration.manifestURLs = [installed.world.server.url("/moved.json")]
        try installed.install()
        return installed
    }

    @Test func anOlderRevisionAtANewURLIsRefusedByAllCommands() async throws {
        let pack = try SamplePack.small(.aurora)
        let installed = try await moved { .content(try $0.manifest(of: [pack])) }
        for command in ["plan", "prefetch"] {
            let ending = try await installed.world.program.run([command] + app)
            #expect(ending.status == 12, "\(command): \(ending)")
        }
        let doctor = try await installed.run("doctor", "--online")
        #expect(doctor.status == 3)
        #expect(
            doctor.output.contains("problem: server of net.example.wallpaper: the manifest at '"),
            "\(doctor)"
        )
        // Without a registration, the manifest names the application.
        let source = ["--container", installed.container.string, "--manifest"]
        let plan = try await installed.world.program.run(
            ["plan"] + source + installed.registration.manifestURLs
        )
        #expect(plan.status == 12, "\(plan)")
    }

    @Test func theManifestThatWasAcceptedLastIsUsedAfterTheURLHasChanged() async throws {
        let installed = try await moved { _ in .status(500) }
        let down = try await installed.world.program.run(["prefetch", "--attempts", "1"] + app)
        #expect(down.status == 10, "\(down)")
        #expect(down.error.contains("; using revision 2"), "\(down)")
        let offline = try await installed.world.program.run(["prefetch", "--offline"] + app)
        #expect(offline.status == 0, "\(offline)")
        #expect(offline.output.contains("1 up to date"), "\(offline)")
    }

    /// The URLs of packs are relative to the URL of the manifest.
    @Test func theSameManifestAtANewURLIsStoredWithIt() async throws {
        let pack = try SamplePack.small(.aurora)
        let installed = try await moved { world in
            var world = world
            world.revision = 2
            return .content(try world.manifest(of: [pack]))
        }
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        let reader = try #require(try ContainerReader.open(installed.container))
        let stored = try reader.storedManifest(for: installed.registration.application)
        #expect(stored?.url == installed.registration.manifestURLs.first)
        #expect(stored?.resolvedURL == installed.registration.manifestURLs.first)
    }
}
