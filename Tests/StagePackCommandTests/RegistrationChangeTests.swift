import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Registrations that packages replace, rename and remove, also while runs are in progress.
@Suite(.apart, .server, .directory, .mountNamespaceIfRoot)
struct RegistrationChangeTests {
    /// The point at which a periodic run waits while a registration changes.
    enum Point: CaseIterable, Sendable {
        case otherApplication
        case ownManifest
        case ownPack
    }

    /// Serves packs in the manifest of an application.
    private func publish(
        _ packs: [SamplePack],
        for application: String = "net.example.wallpaper",
        at path: String,
        revision: Int = 5,
        after gate: Gate? = nil
    ) throws {
        let manifest = Manifest(
            application: try ApplicationID(application),
            revision: revision,
            packs: packs.map(\.pack)
        )
        let server = TestServer.current
        let answer = Answer.content(manifest.json())
        server.answer(path, with: gate.map { answer.waiting(for: $0) } ?? answer)
        for pack in packs { server.answer(pack.path, with: .content(pack.archive)) }
    }

    /// Returns a machine whose application has its manifest at '/old.json'.
    private func machine() async throws -> Installed {
        var installed = try await Installed()
        installed.registration.manifestURLs = [installed.world.server.url("/old.json")]
        try installed.install()
        return installed
    }

    /// Registers an application of another group, whose server sends its manifest when `gate` is open.
    private func addFirstApplication(
        to installed: Installed,
        after gate: Gate
    ) throws {
        var first = installed.registration
        first.application = try ApplicationID("net.example.first")
        first.group = try ApplicationGroupID("net.example.first")
        first.manifestURLs = [installed.world.server.url("/first.json")]
        try publish([], for: "net.example.first", at: "/first.json", after: gate)
        try installed.write(first.json(), to: "net.example.first.json")
    }

    @Test(arguments: Point.allCases, [true, false])
    func aPeriodicRunUndoesNoUpgradeAndNoRemoval(point: Point, isRemoved: Bool) async throws {
        let installed = try await machine()
        let server = installed.world.server
        try publish([try .small(try PackID("old"))], at: "/old.json")
        #expect(try await installed.run("prefetch", "--all").status == 0)
        let second = try SamplePack.small(try PackID("old"), version: 2)
        try publish([try .small(try PackID("new"))], at: "/new.json", revision: 6)

        let gate = Gate()
        defer { gate.open() }
        let manifestGate = point == .ownManifest ? gate : nil
        try publish([second], at: "/old.json", revision: 6, after: manifestGate)
        if point == .otherApplication { try addFirstApplication(to: installed, after: gate) }
        if point == .ownPack {
            server.answer(second.path, with: .content(second.archive).waiting(for: gate))
        }
        let path =
            switch point {
            case .otherApplication: "/first.json"
            case .ownManifest: "/old.json"
            case .ownPack: second.path
            }
        let before = server.requests(for: path).count
        let run = try await installed.world.program.run([
            "prefetch", "--all", "--event", "periodic",
        ]) {
            _ in
            try await poll("the run does not wait") { server.requests(for: path).count > before }
            if isRemoved {
                try installed.uninstall()
                #expect(try await installed.run("gc", "--unregistered").status == 0)
            } else {
                var upgraded = installed
                upgraded.registration.version = "2.0"
                upgraded.registration.manifestURLs = [server.url("/new.json")]
                try upgraded.install()
                let hook = try await upgraded.run(
                    "prefetch",
                    "--hook",
                    "--app",
                    "net.example.wallpaper"
                )
                #expect(hook.output.contains("1 staged"), "\(hook)")
            }
            gate.open()
        }
        #expect(run.status == 0, "\(run)")
        let isNoted = run.error.contains("its registration was changed or removed during the run")
        #expect(isNoted == (point != .otherApplication), "\(run)")
        if isRemoved {
            // The pack that was being downloaded stays until the next collection.
            if point == .ownPack {
                #expect(try installed.staged() == ["old": 1])
                #expect(try await installed.run("gc", "--unregistered").status == 0)
            }
            #expect(!FileStatus.exists(installed.container))
        } else {
            #expect(try installed.staged() == ["new": 1])
            #expect(try installed.history()?.applicationVersion == "2.0")
        }
    }

    @Test func aRunWhoseRegistrationIsRemovedBeginsNoMoreDownloads() async throws {
        let installed = try await machine()
        let server = installed.world.server
        // 16 packs are downloaded at a time.
        let packs = try (0..<40).map { try SamplePack.small(try PackID("pack\($0)")) }
        try publish(packs, at: "/old.json")
        let gate = Gate()
        defer { gate.open() }
        for pack in packs {
            server.answer(pack.path, with: .content(pack.archive).waiting(for: gate))
        }
        let paths = Set(packs.map(\.path))
        let run = try await installed.world.program.run(["prefetch", "--all"]) { _ in
            try await poll("nothing is downloaded") {
                server.requests.contains { paths.contains($0.target) }
            }
            try installed.uninstall()
            gate.open()
        }
        #expect(run.error.contains("its registration was changed or removed"), "\(run)")
        #expect(server.requests.count { paths.contains($0.target) } <= 16)
        #expect(try installed.staged().isEmpty)
    }

    @Test func anApplicationThatIsRegisteredDuringARunHasItsTurn() async throws {
        let installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        try installed.uninstall()
        let gate = Gate()
        defer { gate.open() }
        try addFirstApplication(to: installed, after: gate)
        let run = try await installed.world.program.run([
            "prefetch", "--all", "--event", "periodic",
        ]) {
            _ in
            try await poll("the run does not wait") {
                !installed.world.server.requests(for: "/first.json").isEmpty
            }
            try installed.install()
            gate.open()
        }
        #expect(run.status == 0, "\(run)")
        #expect(try installed.staged() == ["old": 1])
    }

    @Test func aSilentServerLeavesTimeForTheOtherApplicationsOfAHook() async throws {
        let installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        let gate = Gate()
        defer { gate.open() }
        try addFirstApplication(to: installed, after: gate)
        let arguments = ["prefetch", "--all", "--hook"]
        let hook = try await installed.world.program.run(arguments, deadline: 20) { _ in
            try installed.staged() == ["old": 1]
        }
        #expect(try installed.staged() == ["old": 1], "\(hook)")
        #expect(hook.output.contains("net.example.first: nothing staged: the deadline"), "\(hook)")
    }

    /// Registers ten applications whose essential packs are staged: a hook runs them after new applications.
    private func addCompleteApplications(to installed: Installed) async throws {
        try installed.uninstall()
        var complete = installed.registration
        for number in 0..<10 {
            let name = "net.example.game\(number)"
            complete.application = try ApplicationID(name)
            complete.group = try ApplicationGroupID(name)
            complete.manifestURLs = [installed.world.server.url("/game\(number).json")]
            try publish([], for: name, at: "/game\(number).json")
            try installed.write(complete.json(), to: "\(name).json")
        }
        // An application whose registration is as old as its last run counts as new.
        let second = time(nil)
        try await poll("the second does not end") { time(nil) > second }
        #expect(try await installed.run("prefetch", "--all").status == 0)
    }

    @Test func aHookRepeatsARunInTheTimeThatOtherApplicationsLeave() async throws {
        let installed = try await machine()
        let server = installed.world.server
        try await addCompleteApplications(to: installed)
        let quick = try SamplePack.small(try PackID("new"))
        let pack = try SamplePack.small(try PackID("old"))
        try publish([quick, pack], at: "/old.json")
        let content = Answer.content(pack.archive)
        server.answer(pack.path, with: content.stalled(after: 1000), content)
        try installed.install()
        let hook = try await installed.run("prefetch", "--all", "--hook", "--deadline", "20")
        // The count includes the pack that the first run has staged.
        #expect(hook.output.contains("net.example.wallpaper: 2 staged"), "\(hook)")
        #expect(!hook.output.contains("deadline passed"), "\(hook)")
        #expect(hook.output.split(separator: "\n").count == 12, "\(hook)")
        #expect(try installed.staged() == ["new": 1, "old": 1])
    }

    @Test func anApplicationThatHasItsPacksDoesNotHoldUpTheHookOfAnother() async throws {
        let installed = try await machine()
        let server = installed.world.server
        try await addCompleteApplications(to: installed)
        try publish([try .small(try PackID("old"))], at: "/old.json")
        let gate = Gate()
        defer { gate.open() }
        try publish([], for: "net.example.game0", at: "/game0.json", after: gate)
        let earlier = server.requests(for: "/game0.json").count
        try installed.install()
        let hook = try await installed.run("prefetch", "--all", "--hook", "--deadline", "20")
        #expect(hook.output.contains("net.example.wallpaper: 1 staged"), "\(hook)")
        let line =
            "net.example.game0: essential packs are staged: the deadline passed while waiting"
        #expect(hook.output.contains(line), "\(hook)")
        // The request is not repeated in the remaining time.
        #expect(server.requests(for: "/game0.json").count == earlier + 1)
    }

    /// Two runs exceed the deadline, and the repetition of the first one is interrupted.
    @Test func aHookThatIsInterruptedHasALineForEachRun() async throws {
        let installed = try await machine()
        let server = installed.world.server
        try await addCompleteApplications(to: installed)
        let gate = Gate()
        defer { gate.open() }
        try publish([], at: "/old.json", after: gate)
        try installed.install()
        try addFirstApplication(to: installed, after: gate)
        let arguments = ["prefetch", "--all", "--hook", "--deadline", "40"]
        let hook = try await installed.world.program.run(arguments) { running in
            try await poll("no run is repeated") {
                ["/old.json", "/first.json"].contains { server.requests(for: $0).count == 2 }
            }
            running.send(SIGINT)
        }
        for name in ["net.example.wallpaper", "net.example.first"] {
            #expect(hook.output.contains("stagepack: \(name): nothing staged: "), "\(hook)")
        }
        // The lines are about the repetition, and about the run that would have been repeated next.
        for reason in ["interrupted", "the deadline passed while waiting"] {
            #expect(hook.output.ranges(of: reason).count == 1, "\(reason): \(hook)")
        }
        #expect(hook.output.split(separator: "\n").count == 13, "\(hook)")
    }

    @Test func anApplicationThatWasJustInstalledComesFirstInAHook() async throws {
        let installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        try installed.uninstall()
        let gate = Gate()
        defer { gate.open() }
        try addFirstApplication(to: installed, after: gate)
        // After a run that ends a second after its registration, the silent server's application counts as tried before.
        let name = "net.example.first"
        let file = installed.folder.appending("\(name).json")
        let registered = try #require(FileStatus(following: file)).changed
        let container = installed.container.removingLastComponent().appending(name)
        let first = try ApplicationID(name)
        try await poll("no run ends later") {
            _ = try await installed.run("prefetch", "--all", "--hook", "--deadline", "2")
            let run = try ContainerReader.open(container)?.history(of: first)?.lastRun
            return run.map { $0.endedAt > registered } ?? false
        }
        try installed.install()
        let hook = try await installed.run("prefetch", "--all", "--hook", "--deadline", "8")
        let lines = hook.output.split(separator: "\n")
        #expect(lines.count == 3, "\(hook)")
        #expect(
            lines.dropFirst().first?.contains("net.example.wallpaper: 1 staged") ?? false,
            "\(hook)"
        )
    }

    @Test func aRenamedApplicationKeepsItsPacks() async throws {
        var installed = try await machine()
        let pack = try SamplePack.small(try PackID("old"))
        let obsolete = try SamplePack.small(try PackID("obsolete"))
        try publish([pack, obsolete], at: "/old.json")
        #expect(try await installed.run("prefetch", "--all").status == 0)
        try installed.uninstall()
        installed.registration.application = try ApplicationID("net.example.painting")
        installed.registration.manifestURLs = [installed.world.server.url("/painting.json")]
        try installed.install()
        installed.world.server.answer("/painting.json", with: .status(503))

        let early = try await installed.run("gc", "--unregistered")
        let delay = "the others stay until the manifest of 'net.example.painting' is downloaded\n"
        #expect(early.status == 0 && early.output.hasSuffix(delay), "\(early)")
        let json = try await installed.run("gc", "--unregistered", "--json")
        #expect(json.output.contains(#""awaited" : ["#), "\(json)")
        let failed = try await installed.run("prefetch", "--all", "--hook", "--attempts", "1")
        #expect(failed.output.contains("nothing staged"), "\(failed)")
        #expect(try installed.staged() == ["old": 1, "obsolete": 1])

        try publish([pack], for: "net.example.painting", at: "/painting.json")
        let hook = try await installed.run("prefetch", "--all", "--hook")
        #expect(
            hook.output.hasSuffix("net.example.painting: essential packs are staged\n"),
            "\(hook)"
        )
        let ending = try await installed.run("gc", "--unregistered")
        let line = "net.example.wallpaper: no longer registered, 1 pack removed\n"
        #expect(ending == Program.Ending(status: 0, output: line, error: ""))
        #expect(try installed.staged() == ["old": 1])
        #expect(installed.world.server.requests(for: pack.path).count == 1)
    }

    @Test func aContainerOfAnEarlierGroupIsRemovedOnceTheNewOneHasThePacks() async throws {
        var installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        #expect(try await installed.run("prefetch", "--all").status == 0)
        installed.registration.group = try ApplicationGroupID("net.example.other")
        try installed.install()
        let early = try await installed.run("gc", "--unregistered")
        #expect(early == Program.Ending(status: 0, output: "", error: ""))
        let doctor = try await installed.run("doctor")
        #expect(doctor.output.contains("its earlier group has packs in '"), "\(doctor)")
        #expect(try await installed.run("prefetch", "--all").status == 0)
        // Another application of the earlier group may need the packs.
        var other = installed.registration
        other.application = try ApplicationID("net.example.painting")
        other.group = try ApplicationGroupID("net.example")
        other.manifestURLs = [installed.world.server.url("/painting.json")]
        try installed.write(other.json(), to: "net.example.painting.json")
        let awaiting = try await installed.run("doctor")
        let reason = "they stay until the manifest of 'net.example.painting' is downloaded"
        #expect(awaiting.output.contains(reason), "\(awaiting)")
        let next = "the next 'stagepack gc --unregistered' removes"
        #expect(!awaiting.output.contains(next), "\(awaiting)")
        try Directory.open(installed.folder).remove("net.example.painting.json")
        let removing = try await installed.run("doctor")
        #expect(removing.output.contains(next), "\(removing)")
        let ending = try await installed.run("gc", "--unregistered")
        let line = "net.example.wallpaper: now registered for another group, 1 pack removed\n"
        #expect(ending == Program.Ending(status: 0, output: line, error: ""))
        let groups = installed.container.removingLastComponent()
        #expect(try Directory.open(groups).entries().map(\.path.string) == ["net.example.other"])
        let path = try await installed.run("path", "old", "--app", "net.example.wallpaper")
        #expect(path.status == 0)
        let after = try await installed.run("doctor")
        #expect(!after.output.contains("its earlier group"), "\(after)")
    }

    /// Two containers have records of an application that had two groups.
    @Test func anApplicationThatHadTwoGroupsIsNamedOnce() async throws {
        var installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        #expect(try await installed.run("prefetch", "--all").status == 0)
        installed.registration.group = try ApplicationGroupID("net.example.other")
        try installed.install()
        #expect(try await installed.run("prefetch", "--all").status == 0)
        try installed.uninstall()
        let json = try await installed.run("gc", "--unregistered", "--dry-run", "--json")
        let applications = try JSONNode(json: Array(json.output.utf8)).value["applications"]
        guard case .array(let names)? = applications else { throw NeverHappened() }
        #expect(names.count == 1, "\(json)")
        let ending = try await installed.run("gc", "--unregistered")
        let name = installed.registration.application
        #expect(ending.output == "\(name): no longer registered, 2 packs removed\n", "\(ending)")
    }

    /// A link keeps the packs of a group whose name changed.
    @Test func aContainerThatIsALinkToThatOfTheEarlierGroupIsKept() async throws {
        var installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        #expect(try await installed.run("prefetch", "--all").status == 0)
        installed.registration.group = try ApplicationGroupID("net.example.other")
        try installed.install()
        let groups = try Directory.open(installed.container.removingLastComponent())
        try groups.createLink("net.example.other", to: "net.example")
        let ending = try await installed.run("gc", "--unregistered")
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        #expect(try installed.staged() == ["old": 1])
    }

    /// An administrator has moved the packs of a group to another disk.
    @Test func packsBehindALinkAreRemovedWithTheirApplication() async throws {
        let installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        #expect(try await installed.run("prefetch", "--all").status == 0)
        let disk = installed.world.directory.path.appending("disk").string
        try await shell(#"mv "$1" "$2" && ln -s "$2" "$1""#, installed.container.string, disk)
        #expect(try installed.staged() == ["old": 1])
        try installed.uninstall()
        let ending = try await installed.run("gc", "--unregistered")
        let line =
            "\(installed.registration.application): no longer registered, 1 pack removed\n"
        #expect(ending == Program.Ending(status: 0, output: line, error: ""))
        #expect(try installed.staged().isEmpty)
        // The link stays for the next installation.
        #expect(FileStatus.isSymbolicLink(installed.container))
    }

    /// The reason why the folder of packages is missing.
    enum Absence: CaseIterable, Sendable {
        /// dpkg removes the folder with its last file, and its parent, unless a package of StagePack's own has it.
        case removed, removedWithParent
        /// A link leads to a disk that is not mounted.
        case link
        /// The disk of the parent, or of `/usr/share`, is not mounted.
        case unmountedParent, unmountedShare
    }

    @Test(.root("only root has a '/usr/share' of its own"), arguments: Absence.allCases)
    func theFolderOfPackagesMayVanishWithItsLastRegistration(absence: Absence) async throws {
        var installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        try installed.uninstall()
        let share = try installed.world.directory.makeDirectory("share")
        let parent = try share.makeDirectory("stagepack")
        if absence != .unmountedParent { try parent.write([], to: "other", durably: false) }
        if absence != .unmountedShare { _ = try share.makeDirectory("other") }
        try parent.makeDirectory("apps.d").write(
            installed.registration.json(),
            to: "net.example.wallpaper.json",
            durably: false
        )
        let script = #"mount --bind "$1" /usr/share || exit 99; shift; exec "$@""#
        installed.world.program.wrapper =
            ["/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh", share.path.string]
            + installed.world.program.wrapper
        #expect(try await installed.run("prefetch", "--all").status == 0)
        #expect(try installed.staged() == ["old": 1])
        switch absence {
        case .removedWithParent, .unmountedShare: try share.removeTree("stagepack")
        default: try parent.removeTree("apps.d")
        }
        if absence == .link { try parent.createLink("apps.d", to: "/nonexistent") }
        let ending = try await installed.run("gc", "--unregistered")
        #expect(ending.status == 0, "\(ending)")
        let isRemoved = absence == .removed || absence == .removedWithParent
        #expect(FileStatus.exists(installed.container) == !isRemoved)
        #expect(try installed.staged() == (isRemoved ? [:] : ["old": 1]))
        let doctor = try await installed.run("doctor")
        let isNamed = doctor.output.contains(
            "'/usr/share/stagepack' is empty, and may be a mount point"
        )
        #expect(isNamed == (absence == .unmountedParent), "\(doctor)")
    }

    @Test func aCopyOfAContainerIsNoLaunchOfItsApplication() async throws {
        var installed = try await Installed()
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        let large = try SamplePack.small(try PackID("large"), policy: .prefetch(events))
        try installed.world.publish([try .small(try PackID("essential")), large])
        var restrictions = Registration.Restrictions()
        restrictions.downloadAllowance = ByteCount(large.archive.count - 1)
        installed.registration.restrictions = restrictions
        try installed.install()
        #expect(try await installed.run("prefetch", "--all").status == 14)
        // The copies have new access times, as files in the layer of an image have.
        let path = installed.container.string
        let copy = Program(wrapper: [
            "/bin/sh", "-c",
            #"cp -R --preserve=mode "$1" "$1.copy" && rm -r "$1" && mv "$1.copy" "$1""#, "sh",
        ])
        #expect(try await copy.run([path]).status == 0)
        #expect(try await installed.run("prefetch", "--all").status == 14)
        #expect(try installed.history()?.firstLoadedAt == nil)
        let load = try await installed.run("path", "essential", "--app", "net.example.wallpaper")
        #expect(load.status == 0)
        #expect(try await installed.run("prefetch", "--all").status == 0)
        #expect(try installed.staged() == ["essential": 1, "large": 1])
    }

    @Test func filesThatAreNotUsedAsRegistrationsAreNamed() async throws {
        let installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        let content = installed.registration.json()
        let ignored = ["net example.json", "net.example.game.JSON", "net.example.maps"]
        for name in ignored + ["net.example.wallpaper.json.dpkg-old"] {
            try installed.write(content, to: name)
        }
        try installed.write(Array("{}".utf8), to: "net.example.wallpaper.root")
        let commands = [
            (["app", "list"], 3 as Int32), (["doctor"], 3), (["prefetch", "--all"], 0),
            (["prefetch", "--all", "--hook"], 0),
            (["prefetch", "--all", "--hook", "--strict"], 11),
        ]
        for (words, status) in commands {
            let ending = try await installed.world.program.run(words)
            #expect(ending.status == status, "\(words): \(ending)")
            let text = ending.output + ending.error
            let count = text.matches(of: #/' is ignored: its name has to be the application's/#)
                .count
            #expect(count == ignored.count, "\(words): \(ending)")
            for name in ignored { #expect(text.contains("/\(name)' is ignored"), "\(words)") }
        }
        let json = try await installed.run("app", "list", "--json")
        #expect(json.status == 3 && json.output.contains(#""ignored" : ["#), "\(json)")
    }

    @Test func aStrictHookWithoutApplicationsIsAFailure() async throws {
        let installed = try await machine()
        try installed.uninstall()
        let hook = try await installed.run("prefetch", "--all", "--hook")
        #expect(hook == Program.Ending(status: 0, output: "", error: ""))
        let strict = try await installed.run("prefetch", "--all", "--hook", "--strict")
        let line = "stagepack: no application is registered\n"
        #expect(strict == Program.Ending(status: 11, output: line, error: ""))
    }

    @Test func aMaintainerScriptCannotHaveJSON() async throws {
        var installed = try await machine()
        try publish([try .small(try PackID("old"))], at: "/old.json")
        installed.world.program.environment["DPKG_MAINTSCRIPT_NAME"] = "postinst"
        let ending = try await installed.run("prefetch", "--all", "--json")
        // The hook's guard hides the failure from dpkg.
        #expect(ending.status == 0 && ending.output.contains(#""status" : 64"#), "\(ending)")
        #expect(
            (ending.output + ending.error).contains("--json excludes a maintainer script"),
            "\(ending)"
        )
        #expect(try installed.staged().isEmpty)
    }
}
