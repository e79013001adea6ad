import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The combined view of the user's and the system's container in the output of commands.
@Suite(.server, .directory, .mountNamespace)
struct SharedViewTests {
    private struct StagedPath: Decodable, Equatable {
        var location: String?
        var path: String
    }

    private struct Status: Decodable {
        struct Pack: Decodable, Equatable {
            struct Copy: Decodable, Equatable {
                var location: String
                var version: Int
            }
            var id, state: String
            var location: String?
            var version: Int?
            var unusedCopies: [Copy]?
        }
        var packs: [Pack]
    }

    private struct Plans: Decodable {
        struct Plan: Decodable {
            var packs: [Pack]
        }
        struct Pack: Decodable, Equatable {
            var id, outcome, reason: String
            var location: String?
        }
        var plans: [Plan]
    }

    private struct Listing<Pack: Decodable>: Decodable {
        var packs: [Pack]
    }

    private struct Verified: Decodable, Equatable {
        var pack, location: String
    }

    private struct Removed: Decodable, Equatable {
        var pack, location: String
        var generationsRemoved: Int
        var remaining: [Status.Pack.Copy]?
    }

    private func decode<Value: Decodable>(_ ending: Program.Ending) throws -> Value {
        try JSONDecoder().decode(Value.self, from: Data(ending.output.utf8))
    }

    /// A machine on which the user has loaded version 1, and the system staged version 2 later.
    private func machine() async throws -> SharedMachine {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.user("load", "aurora").status == 0)
        try machine.publish(version: 2)
        #expect(try await machine.root("prefetch").status == 0)
        return machine
    }

    @Test func everyCommandReportsTheNewerVersionOfTheSystem() async throws {
        let machine = try await machine()
        for command in ["path", "load"] {
            let folder: StagedPath = try decode(try await machine.user(command, "aurora", "--json"))
            #expect(folder.location == "system")
            #expect(folder.path.hasPrefix("\(SharedMachine.systemContainer)/generations/aurora/2-"))
        }
        let status: Status = try decode(try await machine.user("status", "--json"))
        let pack = Status.Pack(
            id: "aurora",
            state: "staged",
            location: "system",
            version: 2,
            unusedCopies: [.init(location: "user", version: 1)]
        )
        #expect(status.packs == [pack])
        let plans: Plans = try decode(try await machine.user("plan", "--json"))
        let planned = Plans.Pack(
            id: "aurora",
            outcome: "present",
            reason: "staged and up to date",
            location: "system"
        )
        #expect(plans.plans.map(\.packs) == [[planned]])
        let verified: Listing<Verified> = try decode(try await machine.user("verify", "--json"))
        #expect(verified.packs == [Verified(pack: "aurora", location: "system")])
    }

    private struct PinnedPlans: Decodable {
        struct Plan: Decodable {
            var packs: [Pack]
        }
        struct Pack: Decodable {
            struct Pin: Decodable {
                var version: Int
            }
            var outcome: String
            var location: String?
            var pin: Pin?
        }
        var plans: [Plan]
    }

    /// If there is one container only, a plan does not read its packs again for their locations and pins.
    @Test func aPlanForTheOnlyContainerHasLocationsAndPins() async throws {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.user("load", "aurora").status == 0)
        #expect(try await machine.user("pin", "aurora").status == 0)
        let plans: PinnedPlans = try decode(try await machine.user("plan", "--json"))
        let packs = plans.plans.flatMap(\.packs)
        #expect(packs.map(\.outcome) == ["present"])
        #expect(packs.map(\.location) == ["user"])
        #expect(packs.map(\.pin?.version) == [1])
    }

    /// A run fetches no pack that `plan` does not fetch.
    @Test(arguments: [["prefetch"], ["fetch", "aurora"]])
    func nothingIsFetchedThatTheSystemHas(command: [String]) async throws {
        let machine = try await machine()
        let pack = try SamplePack.small(.aurora, version: 2)
        machine.installed.world.server.answer(pack.path, with: .status(404))
        let words = command + ["--app", "net.example.wallpaper"]
        let ending = try await machine.userForAll(words)
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output.contains("0 staged, 1 up to date"))
    }

    @Test func whyExplainsBothContainers() async throws {
        let machine = try await machine()
        let why = try await machine.user("why").output
        #expect(why.contains("in \(SharedMachine.userContainer) (user)\n"))
        #expect(why.contains("in \(SharedMachine.systemContainer) (system)\n"))
    }

    @Test func aRunForANamedPackDoesNotHideTheSuccessOfTheSystemsRun() async throws {
        let machine = try await machine()
        #expect(try await machine.user("fetch", "aurora").status == 0)
        let metrics = try await machine.userForAll(["metrics"]).output
        let name =
            #"stagepack_last_success_timestamp_seconds{application="net.example.wallpaper"} "#
        let line = metrics.split(separator: "\n").first { $0.hasPrefix(name) }
        #expect(line.flatMap { Double($0.dropFirst(name.count)) } ?? 0 > 0, "\(metrics)")
    }

    @Test func aRemovalNamesWhatStaysInTheSystemsContainer() async throws {
        let machine = try await machine()
        let removed: Listing<Removed> = try decode(
            try await machine.user("remove", "aurora", "--json")
        )
        let expected = Removed(
            pack: "aurora",
            location: "user",
            generationsRemoved: 1,
            remaining: [.init(location: "system", version: 2)]
        )
        #expect(removed.packs == [expected])
        let status: Status = try decode(try await machine.user("status", "--json"))
        #expect(status.packs.map(\.location) == ["system"])
        #expect(status.packs.map(\.unusedCopies) == [nil])
    }

    /// '--quiet' omits the summary of the removal, so a warning names the remaining copy as well.
    @Test func aQuietRemovalWarnsOfWhatStays() async throws {
        let machine = try await machine()
        let ending = try await machine.user("remove", "aurora", "--quiet")
        let warning = """
            stagepack: warning: aurora: the system's container still has version 2: as root, run \
            'stagepack remove aurora --app net.example.wallpaper' to remove it

            """
        #expect(ending == Program.Ending(status: 0, output: "", error: warning))
    }

    @Test func aUserThatCannotRemoveThePackLearnsWhoCan() async throws {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.root("prefetch").status == 0)
        let ending = try await machine.user("remove", "aurora")
        #expect(ending.status == 41)
        #expect(
            ending.error == """
                stagepack: error: pack 'aurora': only the system's container '\(SharedMachine.systemContainer)' has \
                it, which this user cannot change
                hint: as root, run 'stagepack remove aurora --app net.example.wallpaper'

                """
        )
        let words = try await HintedCommand.words(in: ending.error)
        #expect(try await machine.rootForAll(words).output == "aurora: removed\n")
        #expect(try await machine.user("remove", "aurora").output == "aurora: was not staged\n")
    }

    @Test func aCollectionOfAUserWithoutAContainerNamesTheSystems() async throws {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.root("prefetch").status == 0)
        let ending = try await machine.user("gc")
        #expect(ending.status == 0, "\(ending)")
        #expect(
            ending.error == """
                nothing is staged in this user's container yet; as root, run \
                'stagepack gc --app net.example.wallpaper' for the system's

                """
        )
    }

    /// The packs are only in the system's container, even after a run of the user, which stages nothing.
    @Test(arguments: ["rollback", "pin", "repair"])
    func aCommandForAPackOfTheSystemSaysWhoCan(command: String) async throws {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.root("prefetch").status == 0)
        for isAfterRun in [false, true] {
            let ending = try await machine.user(command, "aurora")
            #expect(ending.status == 41, "\(isAfterRun): \(ending)")
            #expect(
                ending.error == """
                    stagepack: error: pack 'aurora': only the system's container \
                    '\(SharedMachine.systemContainer)' has it, which this user cannot change
                    hint: as root, run 'stagepack \(command) aurora --app net.example.wallpaper'

                    """
            )
            #expect(
                try await machine.user("prefetch").output
                    == "net.example.wallpaper: 0 staged, 1 up to date in \(SharedMachine.systemContainer)\n"
            )
        }
        // The user may change the user's own copy.
        try machine.publish(version: 2)
        let run = try await machine.user("prefetch")
        #expect(run.output.hasSuffix("in \(SharedMachine.userContainer)\n"), "\(run)")
        #expect(try await machine.user("pin", "aurora").status == 0)
    }

    @Test func aPinOfTheSystemHoldsForItsUsersToo() async throws {
        var machine = try await machine()
        #expect(try await machine.root("pin", "aurora").status == 0)
        try machine.publish(version: 3)
        let plans: Plans = try decode(try await machine.user("plan", "--json"))
        #expect(plans.plans.flatMap(\.packs).map(\.reason) == ["pinned to version 2"])
        #expect(try await machine.user("fetch", "aurora").status == 43)
        let release = try await machine.user("pin", "--release", "aurora")
        #expect(release.status == 41)
        let words = try await HintedCommand.words(in: release.error)
        #expect(try await machine.rootForAll(words).status == 0)
        #expect(try await machine.user("fetch", "aurora", "--quiet").status == 0)
        let folder: StagedPath = try decode(try await machine.user("path", "aurora", "--json"))
        #expect(folder.location == "user")
    }
}

/// Commands without an application, and a registration that is not valid.
@Suite(.server, .directory, .mountNamespace)
struct ScopeTests {
    /// Two registered applications of different groups, both staged, and an invalid registration.
    private func installed() async throws -> Installed {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        let text = String(decoding: installed.registration.json(), as: UTF8.self)
            .replacing("net.example.wallpaper", with: "net.example.other")
            .replacing("\"net.example\"", with: "\"net.other\"")
        try installed.write(Array(text.utf8), to: "net.example.other.json")
        return installed
    }

    @Test(arguments: [[String](), ["--all"]])
    func statusVerifyAndGarbageCollectionLookAtEveryApplication(all: [String]) async throws {
        let installed = try await installed()
        let run = { (words: String...) in
            try await installed.world.program.run(words + all)
        }
        let status = try await run("status").output
        #expect(status.contains("groups/net.example"))
        #expect(status.contains("groups/net.other: nothing is staged yet"))
        #expect(try await run("verify").output.hasSuffix("): as it was staged\n"))
        #expect(try await run("verify", "aurora").status == 0)
        #expect(try await run("verify", "corona").status == 2)
        #expect(try await run("gc").output == "removed 0 generations, 0 downloads, 0 leftovers\n")
        #expect(try await run("why").output.contains("net.example.wallpaper 1.0 in "))
    }

    @Test(arguments: ["status", "verify", "gc", "why"])
    func aRegistrationThatIsNotValidIsNamedBesideTheOthers(command: String) async throws {
        let installed = try await installed()
        try installed.write(Array("{".utf8), to: "net.example.broken.json")
        let ending = try await installed.run(command)
        #expect(ending.status == 11)
        #expect(ending.error.contains("net.example.broken.json': "))
        #expect(ending.output != "")
    }

    /// The same command runs on all machines, also on those without an application.
    @Test(arguments: ["status", "verify", "gc", "ls", "du"])
    func aNoteSaysThatNoApplicationIsRegistered(command: String) async throws {
        let installed = try await Installed()
        try installed.uninstall()
        let error = """
            no application is registered, and no container is named
            hint: pass --container DIR, or register one with 'stagepack app register FILE'

            """
        let ending = try await installed.run(command)
        #expect(ending == Program.Ending(status: 0, output: "", error: error))
        let json = try await installed.run(command, "--json")
        #expect(json.status == 0 && json.error == "", "\(json)")
        guard command == "verify" else { return }
        let named = try await installed.run(command, "aurora")
        #expect(named.status == 64)
        #expect(named.error.hasPrefix("stagepack: error: no application is registered"))
    }

    @Test(arguments: ["status", "verify", "gc", "why"])
    func allExcludesAnApplicationName(command: String) async throws {
        let installed = try await Installed()
        let ending = try await installed.run(command, "--all", "--app", "net.example.wallpaper")
        #expect(ending.status == 64)
        #expect(ending.error.contains("--all excludes --app, --manifest and --container."))
    }

    @Test(arguments: [
        ("net.exmaple.wallpaper", ": did you mean 'net.example.wallpaper'?"),
        ("org.entirely.different", ": registered are 'net.example.wallpaper'"),
    ])
    func anUnregisteredApplicationIsDistinguishedFromRegisteredOnes(
        id: String,
        rest: String
    ) async throws {
        let installed = try await Installed()
        let ending = try await installed.run("status", "--app", id)
        #expect(ending.status == 11)
        let line = ending.error.split(separator: "\n").first
        #expect(line == "stagepack: error: application '\(id)' is not registered\(rest)")
        guard id == "org.entirely.different" else { return }
        // A file that cannot be used registers nothing.
        try installed.write(Array("{".utf8), to: "net.unusable.json")
        #expect(try await installed.run("status", "--app", id).error == ending.error)
    }

    /// It is not known whether a pack is offered without a manifest.
    @Test func aPackWithoutAManifestIsNotCalledObsolete() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        _ = try await installed.run("prefetch", "--all", "--quiet")
        let folder = try Directory.open(installed.container.appending("manifest"))
        try folder.remove("net.example.wallpaper.json")
        let ending = try await installed.run("status")
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output.hasSuffix(" staged\n"), "\(ending)")
    }

    /// The user's container has no pack, since the system's container has them all.
    @Test func aLoadOfThePacksOfTheSystemEndsTheRestrictionsOfAUser() async throws {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.root("prefetch").status == 0)
        let late = try SamplePack.small(
            try PackID("late"),
            policy: .prefetch([.firstInstallation, .subsequentUpdate])
        )
        try machine.installed.world.publish(try .small(.aurora), late)
        var restrictions = Registration.Restrictions()
        restrictions.downloadAllowance = ByteCount(Int64(1))
        machine.installed.registration.restrictions = restrictions
        try machine.installed.install()
        #expect(try await machine.user("prefetch", "--event", "update").status == 14)
        #expect(try await machine.user("path", "aurora").status == 0)
        let after = try await machine.user("prefetch", "--event", "periodic")
        #expect(after.status == 0, "\(after)")
        #expect(after.output.contains("1 staged"), "\(after)")
    }
}
