import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// `prefetch` in the hook of a package manager, and the runs after it.
@Suite(.apart, .server, .directory, .mountNamespaceIfRoot)
struct HookTests {
    private static let hook = ["prefetch", "--all", "--hook"]
    /// The line that a hook prints before its first request.
    static let start = "stagepack: installing essential packs, within 60 seconds\n"

    /// Three packs, one of each policy.
    private func packs(version: Int = 1) throws -> [SamplePack] {
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        return [
            try .small(try PackID("essential"), version: version, policy: .essential(events)),
            try .small(try PackID("prefetch"), version: version, policy: .prefetch(events)),
            try .small(try PackID("on-demand"), version: version, policy: .onDemand),
        ]
    }

    @Test func aHookStagesWhatIsEssentialAndTheTimerTheRest() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let hook = try await installed.run("prefetch", "--all", "--hook")
        let output = Self.start + "stagepack: net.example.wallpaper: 1 staged (20.2 kB)\n"
        #expect(hook == Program.Ending(status: 0, output: output, error: ""))
        #expect(try installed.staged() == ["essential": 1])
        #expect(try installed.history()?.pending == [.install])

        let timer = try await installed.run("prefetch", "--all", "--event", "periodic", "--quiet")
        #expect(timer == Program.Ending(status: 0, output: "", error: ""))
        #expect(try installed.staged() == ["essential": 1, "prefetch": 1])
        #expect(try installed.history()?.pending == [])

        let again = try await installed.run("prefetch", "--all", "--hook")
        let line = "stagepack: net.example.wallpaper: essential packs are staged\n"
        #expect(again.output == Self.start + line)
    }

    /// The periodic run stages packs of registered applications only.
    @Test func aHookWithoutAManifestIsNotRetried() async throws {
        let installed = try await Installed()
        let container = installed.world.container.string
        let ending = try await installed.run("prefetch", "--hook", "--container", container)
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output.contains("name a manifest; "), "\(ending)")
        #expect(!ending.output.contains("retries"), "\(ending)")
    }

    @Test func dpkgIsNoticed() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        installed.world.server.answer("/manifest.json", with: .status(500))
        installed.world.program.environment["DPKG_MAINTSCRIPT_NAME"] = "postinst"
        let ending = try await installed.run(
            "prefetch",
            "--app",
            "net.example.wallpaper",
            "--attempts",
            "1"
        )
        #expect(ending.status == 0)
        #expect(ending.error == "")
        #expect(ending.output.hasSuffix("; the next periodic run retries\n"))
        #expect(ending.output.split(separator: "\n").count == 2)
    }

    /// dpkg runs scripts outside of the root that it changes (`--root`, `--force-script-chrootless`).
    @Test(arguments: [["--hook"], []])
    func nothingIsStagedOnThisMachineForAnotherRoot(options: [String]) async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        if options.isEmpty {
            installed.world.program.environment["DPKG_MAINTSCRIPT_NAME"] = "postinst"
        }
        installed.world.program.environment["DPKG_ROOT"] = "/target"
        let command = ["prefetch", "--app", "net.example.wallpaper"] + options
        let ending = try await installed.world.program.run(command)
        let line =
            "stagepack: nothing staged: dpkg changes the root '/target'; "
            + "the first periodic run there stages its packs\n"
        #expect(ending == Program.Ending(status: 0, output: line, error: ""))
        #expect(!FileStatus.exists(installed.container))
        #expect(installed.world.server.counts(for: "/manifest.json").requests == 0)
        let quiet = try await installed.world.program.run(command + ["--quiet"])
        #expect(quiet == Program.Ending(status: 0, output: "", error: ""))

        let container = installed.world.container.string
        let named = try await installed.world.program.run(command + ["--container", container])
        #expect(named.output.contains("net.example.wallpaper: 1 staged"), "\(named)")
    }

    @Test func aRegistrationThatIsNotValidIsLeftToNoLaterRun() async throws {
        let installed = try await Installed()
        try installed.write(Array("{}".utf8), to: "net.example.wallpaper.json")
        let ending = try await installed.run("prefetch", "--all", "--hook")
        #expect(ending.status == 0)
        #expect(ending.output.contains("stagepack: registrations: registration '"), "\(ending)")
        #expect(ending.output.hasSuffix("; correct the file, or remove it\n"), "\(ending)")
    }

    /// Faulty origins, and the expected line of output.
    private static let origins: [(name: String, line: String, status: Int32)] = [
        ("absent", "nothing staged: ", 10),
        ("silent", "nothing staged: the deadline passed while waiting for the manifest at '", 75),
        ("rubbish", "nothing staged: ", 11),
        (
            "stalled pack", "0 staged, 1 missing: pack 'essential': the deadline passed: 1.0 kB of",
            75
        ),
        ("refused pack", "0 staged, 1 missing: pack 'essential': ", 21),
        ("offline", "nothing staged: the manifest is not in the container, and ", 75),
    ]

    @Test(arguments: origins)
    func aHookIsNeitherHeldUpNorBrokenAndTheTimerCompletesIt(
        origin: (name: String, line: String, status: Int32)
    ) async throws {
        var installed = try await Installed()
        let packs = try packs()
        try installed.world.publish(packs)
        let server = installed.world.server
        switch origin.name {
        case "absent":
            installed.registration.manifestURLs = ["http://127.0.0.1:9/manifest.json"]
            try installed.install()
        case "silent":
            server.answer("/manifest.json", with: .content([0x20]).stalled(after: 0))
        case "rubbish": server.answer("/manifest.json", with: .content(Array("<html>".utf8)))
        case "stalled pack":
            server.answer(packs[0].path, with: .content(packs[0].archive).stalled(after: 1000))
        case "refused pack": server.answer(packs[0].path, with: .status(403))
        default: installed.world.program.environment["STAGEPACK_OFFLINE"] = "1"
        }
        let start = ContinuousClock.now
        // The pack must arrive in part; the others end by themselves. A busy machine takes longer than 3 seconds for both.
        let deadline = ["silent": 3, "stalled pack": 15][origin.name] ?? 60
        let arguments = ["--deadline", "\(deadline)", "--attempts", "1"]
        let ending = try await installed.world.program.run(Self.hook + arguments)
        // The machine may be busy; but a stall that no deadline ends is noticed after 60 seconds.
        #expect(ContinuousClock.now - start < .seconds(50))
        #expect(ending.status == 0)
        #expect(ending.error == "")
        let head = "stagepack: installing essential packs, within \(deadline) seconds\n"
        #expect(
            ending.output.hasPrefix("\(head)stagepack: net.example.wallpaper: \(origin.line)")
        )
        #expect(ending.output.hasSuffix("; the next periodic run retries\n"))
        #expect(ending.output.split(separator: "\n").count == 2)
        #expect(try installed.history()?.pending == [.install])
        let strict = try await installed.world.program.run(Self.hook + ["--strict"] + arguments)
        #expect(strict.status == origin.status)

        installed.world.program.environment["STAGEPACK_OFFLINE"] = nil
        installed.registration.manifestURLs = [installed.world.manifestURL]
        try installed.install()
        installed.world.revision = 1
        try installed.world.publish(packs)
        let timer = try await installed.run("prefetch", "--all", "--event", "periodic", "--quiet")
        #expect(timer == Program.Ending(status: 0, output: "", error: ""))
        #expect(try installed.staged() == ["essential": 1, "prefetch": 1])
        let history = try #require(try installed.history())
        #expect(history.pending == [])
        #expect(history.lastRun?.problem == nil)
        #expect(history.packs.allSatisfy { $0.problem == nil && $0.failures == 0 })
    }

    @Test func aDeadlineDoesNotHideWhatFailedUntilThen() async throws {
        var installed = try await Installed()
        let packs = try packs()
        try installed.world.publish(packs)
        let refused = "the request to 'http://127.0.0.1:9/manifest.json' failed: "
        installed.registration.manifestURLs = ["http://127.0.0.1:9/manifest.json"]
        try installed.install()
        // The pauses between attempts are random: with few attempts, the run may end before its deadline.
        let arguments = Self.hook + ["--attempts", "100"]
        let line =
            "nothing staged: the deadline passed, and the manifest is not available: \(refused)"
        let ending = try await installed.world.program.run(arguments, deadline: 4) {
            $0.output.contains(line)
        }
        #expect(ending.output.contains(line), "\(ending)")
        for command in ["why", "doctor"] {
            let told = try await installed.world.program.run([command])
            #expect(told.output.contains(refused), "\(told)")
        }

        installed.registration.manifestURLs = [installed.world.manifestURL]
        try installed.install()
        installed.world.server.answer(packs[0].path, with: .status(503))
        let answer = "was answered with status 503"
        let second = try await installed.world.program.run(arguments, deadline: 4) {
            $0.output.contains(answer)
        }
        #expect(second.output.contains(answer), "\(second)")
    }

    /// Without a route, each pause between attempts would hold up the package manager for nothing.
    @Test(
        .strace,
        .rootInMountNamespace,
        arguments: [([], 1), (["--attempts", "2"], 2)] as [([String], Int)]
    )
    func aHookWithoutANetworkTriesOnce(options: [String], count: Int) async throws {
        var world = try World()
        let trace = world.directory.path.appending("trace")
        world.program.wrapper = [
            "/usr/bin/unshare", "-n", "/usr/bin/strace", "-f", "-o", trace.string, "-e",
            "trace=connect", try Program.path.string,
        ]
        let url = "https://198.51.100.1/manifest.json"
        let ending = try await world.program.run(
            ["prefetch", "--hook", "--manifest", url, "--container", world.container.string]
                + options
        )
        #expect(ending.status == 0 && ending.output.contains("cannot be reached"), "\(ending)")
        let calls = try text(of: trace).split(separator: "\n")
        #expect(calls.count { $0.contains("htons(443)") && !$0.contains("resumed") } == count)
    }

    @Test(arguments: ["net.example.broken", "net.example.none", "no id"])
    func aHookForAnApplicationWithoutARegistrationEndsWellToo(id: String) async throws {
        let installed = try await Installed()
        try installed.write(Array("{".utf8), to: "net.example.broken.json")
        let ending = try await installed.run("prefetch", "--hook", "--app", id)
        #expect(ending.status == 0)
        #expect(ending.error == "")
        #expect(ending.output.split(separator: "\n").count == 2)
        let strict = try await installed.run("prefetch", "--hook", "--strict", "--app", id)
        #expect(strict.status == (id == "no id" ? 64 : 11))
    }

    @Test func aBrokenRegistrationStopsNoOther() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        try installed.write(Array("{".utf8), to: "broken.json")
        let ending = try await installed.run("prefetch", "--all", "--hook")
        #expect(ending.status == 0)
        let lines = ending.output.split(separator: "\n")
        let first = "stagepack: installing essential packs, within 60 seconds"
        #expect(lines.count == 3)
        #expect(lines.first.map(String.init) == first)
        #expect(lines.dropFirst().first?.contains("broken.json") ?? false)
        #expect(try installed.staged() == ["essential": 1])
        let all = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(all.status == 11)
        #expect(try installed.staged() == ["essential": 1, "prefetch": 1])
    }

    @Test func aPeriodicRunUpdatesStagedPacksAndRemovesObsoleteOnes() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        _ = try await installed.run("prefetch", "--all")
        #expect(try installed.staged() == ["essential": 1, "prefetch": 1])
        try installed.world.publish(Array(try packs(version: 2).dropFirst()))
        let ending = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(ending.status == 0)
        #expect(ending.output.contains("1 staged, 0 up to date, 1 removed"))
        #expect(try installed.staged() == ["prefetch": 2])
    }

    @Test func aPackThatCannotBeRemovedStopsNoOtherAndNoRun() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        _ = try await installed.run("prefetch", "--all")
        let generations = try Directory.open(installed.container.appending("generations"))
        try generations.removeTree("essential")
        try generations.write([], to: "essential", durably: false)
        try installed.world.publish([])
        let ending = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(ending.status == 0, "\(ending)")
        let warning = "A pack that no manifest offers cannot be removed"
        #expect(ending.error.contains(warning), "\(ending)")
        #expect(ending.error.contains("pack.id=essential"), "\(ending)")
        #expect(ending.output.contains("1 removed"), "\(ending)")
        #expect(try Directory.open(installed.container.appending("packs")).entries().isEmpty)
        #expect(try installed.history()?.lastRun?.request == .periodic)
    }

    /// The pin forbids the offered version, and the pinned version is no longer offered.
    @Test func aPinnedPackWithoutItsFilesIsAFailure() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let app = ["--app", "net.example.wallpaper"]
        _ = try await installed.run("prefetch", "--all")
        #expect(try await installed.world.program.run(["pin", "essential"] + app).status == 0)
        try installed.world.publish(try packs(version: 2))
        let well = try await installed.run("prefetch", "--all", "--hook", "--strict")
        #expect(well.status == 0, "\(well)")
        let generations = installed.container.appending("generations/essential")
        for entry in try Directory.open(generations).entries() {
            let generation = try Directory.open(generations.appending(entry.name))
            try generation.removeTree("content")
        }
        let hook = try await installed.run("prefetch", "--all", "--hook", "--strict")
        #expect(hook.status == 43, "\(hook)")
        #expect(
            hook.output.contains("0 staged, 1 missing: pack 'essential': it is pinned"),
            "\(hook)"
        )
        #expect(hook.output.contains("stagepack pin --release essential"), "\(hook)")
        let prefetch = try await installed.run("prefetch", "--all")
        #expect(prefetch.status == 43, "\(prefetch)")
        #expect(prefetch.error.contains("stagepack pin --release essential"), "\(prefetch)")
        let release = ["pin", "essential", "--release"] + app
        #expect(try await installed.world.program.run(release).status == 0)
        #expect(try await installed.run("prefetch", "--all").status == 0)
        #expect(try installed.staged() == ["essential": 2, "prefetch": 2])
    }

    @Test func restrictionsBindUntilTheApplicationHasLoadedAPack() async throws {
        var installed = try await Installed()
        let packs = try packs()
        try installed.world.publish(packs)
        var restrictions = Registration.Restrictions()
        restrictions.downloadAllowance = ByteCount(packs[1].archive.count - 1)
        installed.registration.restrictions = restrictions
        try installed.install()
        let first = try await installed.run("prefetch", "--all")
        #expect(first.status == 14)
        #expect(first.error.contains("'downloadAllowance' of the registration leaves"))
        #expect(try installed.staged() == ["essential": 1])
        #expect(try installed.history()?.pending == [.install])
        let waiting = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(waiting.status == 14)

        let load = try await installed.run("path", "essential", "--app", "net.example.wallpaper")
        #expect(load.status == 0)
        let second = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(second.status == 0)
        #expect(try installed.staged() == ["essential": 1, "prefetch": 1])
        #expect(try installed.history()?.firstLoadedAt != nil)
        #expect(try installed.history()?.pending == [])
    }

    @Test func aLoadDuringARunIsRecorded() async throws {
        var mine = try await Installed()
        let packs = try packs()
        try mine.world.publish(packs)
        try mine.install()
        let installed = mine
        let loaded = Gate()
        defer { loaded.open() }
        installed.world.server.answer(
            packs[1].path,
            with: .content(packs[1].archive).waiting(for: loaded)
        )
        let arguments = ["prefetch", "--all", "--event", "install"]
        let run = try await installed.world.program.run(arguments) { _ in
            try await poll("nothing is staged") { try installed.staged().isEmpty == false }
            let load = try await installed.run(
                "path",
                "essential",
                "--app",
                "net.example.wallpaper"
            )
            #expect(load.status == 0)
            #expect(try installed.staged() == ["essential": 1])
            loaded.open()
        }
        #expect(run.status == 0)
        #expect(try installed.staged() == ["essential": 1, "prefetch": 1])
        #expect(try installed.history()?.firstLoadedAt != nil)
    }

    @Test func theDownloadAllowanceIsSpentOverSeveralRuns() async throws {
        var installed = try await Installed()
        let first = try packs()
        let second = try packs(version: 2)
        try installed.world.publish(first)
        var restrictions = Registration.Restrictions()
        restrictions.downloadAllowance = ByteCount(
            first[1].archive.count + second[1].archive.count - 1
        )
        installed.registration.restrictions = restrictions
        try installed.install()
        #expect(try await installed.run("prefetch", "--all").status == 0)
        try installed.world.publish(second)
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 14)
        #expect(try installed.staged() == ["essential": 2, "prefetch": 1])
    }

    @Test func packsOfAnUninstalledApplicationAreRemoved() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        _ = try await installed.run("prefetch", "--all")
        let nothing = try await installed.run("gc", "--unregistered")
        #expect(nothing == Program.Ending(status: 0, output: "", error: ""))
        #expect(try installed.staged() == ["essential": 1, "prefetch": 1])
        try installed.uninstall()
        let plan = try await installed.run("gc", "--unregistered", "--dry-run")
        #expect(plan.status == 0 && plan.error == "")
        let planned = "net.example.wallpaper: no longer registered, 2 packs would be removed\n"
        #expect(plan.output == planned)
        #expect(try installed.staged() == ["essential": 1, "prefetch": 1])
        let ending = try await installed.run("gc", "--unregistered")
        let output = "net.example.wallpaper: no longer registered, 2 packs removed\n"
        #expect(ending == Program.Ending(status: 0, output: output, error: ""))
        #expect(!FileStatus.exists(installed.container))
    }

    @Test func packsThatAreReadStayWithTheRecordsOfTheirApplication() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        _ = try await installed.run("prefetch", "--all")
        try installed.uninstall()
        let reader = try #require(try ContainerReader.open(installed.container))
        var lease = try reader.lease(try PackID("essential"))
        #expect(lease != nil)
        let first = try await installed.run("gc", "--unregistered")
        let line = "net.example.wallpaper: no longer registered, 1 pack removed"
        #expect(first.output == line + "; 1 pack is in use\n")
        #expect(try installed.history() != nil)
        lease = nil
        let second = try await installed.run("gc", "--unregistered")
        #expect(second == Program.Ending(status: 0, output: line + "\n", error: ""))
        #expect(!FileStatus.exists(installed.container))
    }

    @Test func aContainerThatCannotBeUsedStopsTheCollectionOfNoOther() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        _ = try await installed.run("prefetch", "--all")
        try installed.addUnusableApplication()
        let all = try await installed.run("gc", "--json")
        #expect(all.status == 41)
        #expect(all.output.contains("a.broken") && all.error == "", "\(all)")

        try installed.uninstall()
        let ending = try await installed.run("gc", "--unregistered")
        #expect(ending.status == 41)
        #expect(ending.error.contains("a.broken"), "\(ending)")
        #expect(ending.output.contains("2 packs removed"), "\(ending)")
        #expect(!FileStatus.exists(installed.container))
    }

    /// A folder is missing if its disk is not mounted, or if `XDG_CONFIG_HOME` has changed.
    @Test func aMissingFolderOfRegistrationsForgetsNothing() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        _ = try await installed.run("prefetch", "--all")
        let parent = try Directory.open(installed.folder.removingLastComponent())
        try parent.rename("apps.d", to: "away", in: parent, replacing: false)
        var ending = try await installed.run("gc", "--unregistered")
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        #expect(unsafe symlink("/nonexistent", installed.folder.string) == 0)
        ending = try await installed.run("gc", "--unregistered")
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        #expect(try installed.staged() == ["essential": 1, "prefetch": 1])
        try parent.remove("apps.d")
        try parent.rename("away", to: "apps.d", in: parent, replacing: false)
        try installed.uninstall()
        ending = try await installed.run("gc", "--unregistered")
        #expect(ending.status == 0)
        #expect(!FileStatus.exists(installed.container))
    }

    @Test func theLastCompleteApplicationGetsATenthOfTheDeadline() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        try installed.addOther("net.example.atlas")
        let file = installed.folder.appending("net.example.wallpaper.json")
        let registered = try #require(FileStatus(following: file)).changed
        // Both times are whole seconds, so a registration from the second in which a run ends counts as newer.
        try await poll("no run ends later") {
            #expect(try await installed.run("prefetch", "--all").status == 0)
            return try #require(try installed.history()?.lastRun).endedAt > registered
        }
        let update = try packs(version: 2)
        try installed.world.publish(update)
        let stalled = Answer.content(update[0].archive).stalled(after: 1000)
        installed.world.server.answer(update[0].path, with: stalled)
        let start = ContinuousClock.now
        let ending = try await installed.run("prefetch", "--all", "--hook", "--deadline", "60")
        // The machine may be busy; but the rest of the deadline is much longer.
        #expect(ContinuousClock.now - start < .seconds(45))
        #expect(ending.output.contains("pack 'essential': the deadline passed"), "\(ending)")
    }

    /// The hook repeats a run that its share of the deadline has ended: for the history, both are one failed run.
    @Test func aRunThatTheHookRepeatsIsOneFailedRun() async throws {
        var installed = try await Installed()
        let packs = try packs()
        try installed.world.publish(packs)
        installed.world.server.answer(
            packs[0].path,
            with: .content(packs[0].archive).stalled(after: 1000)
        )
        try installed.addOther()
        let ending = try await installed.run("prefetch", "--all", "--hook", "--deadline", "8")
        #expect(ending.output.contains("1 missing: pack 'essential': the deadline"), "\(ending)")
        let entry = try installed.history()?.packs.first { $0.id == packs[0].pack.id }
        #expect(entry?.failures == 1)
    }

    @Test func applicationsThatADeadlineLeavesAreNoSuccess() async throws {
        var installed = try await Installed()
        try installed.uninstall()
        for number in 0..<9 {
            let application = try ApplicationID("net.example.game\(number)")
            let path = "/manifest\(number).json"
            let manifest = Manifest(application: application, revision: 1, packs: [])
            installed.world.server.answer(path, with: .content(manifest.json()))
            installed.registration.application = application
            installed.registration.manifestURLs = [installed.world.server.url(path)]
            try installed.install()
        }
        #expect(try await installed.run("prefetch", "--all").status == 0)
        let ending = try await installed.run("prefetch", "--all", "--offline", "--deadline", "0")
        #expect(ending.status == 75, "\(ending)")
    }

    @Test func whyShowsDecisionsAndNextSteps() async throws {
        var installed = try await Installed()
        let packs = try packs()
        try installed.world.publish(packs)
        installed.world.server.answer(packs[0].path, with: .status(403))
        _ = try await installed.run("prefetch", "--all", "--hook", "--attempts", "1")
        _ = try await installed.run("prefetch", "--all", "--hook", "--attempts", "1")
        let why = try await installed.run("why")
        let text = installed.world.masked(why.output)
            .replacing(#/\d{4}-\d\d-\d\d \d\d:\d\d \([^)]+\)/#, with: "TIME")
            .replacing(installed.container.string, with: "CONTAINER")
            .replacing("DIRECTORY/var-lib/stagepack/groups/net.example", with: "CONTAINER")
            .replacing("DIRECTORY/data/stagepack/groups/net.example", with: "CONTAINER")
            .replacing("/var/lib/stagepack/groups/net.example", with: "CONTAINER")
            .replacing(#/\((user|system)\)/#, with: "(LOCATION)")
        #expect(
            text == """
                net.example.wallpaper 1.0 in CONTAINER (LOCATION)
                  last run: TIME for 'install', essential packs only
                  not complete: 'install'; 'stagepack prefetch --all --event periodic' completes it
                essential, version 1: failed, it is missing
                  decided: TIME, policy 'essential' at 'install', essential packs only
                  tried: 2 runs in a row, pack 'essential': \
                'SERVER/packs/essential-1.tar.zst' was answered with status 403
                  again: in the next run
                  to do: pass credentials with --netrc-file or --token-file
                prefetch, version 1: left, not essential
                  decided: TIME, policy 'prefetch' at 'install', essential packs only
                on-demand, version 1: left, downloaded when the application asks for it
                  decided: TIME, policy 'onDemand' at 'install', essential packs only

                """
        )
        let unknown = try await installed.run("why", "volcanoes", "--json")
        #expect(unknown.status == 13)
    }

    @Test func aSimulationReportsEveryDecisionAndLeavesNothing() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let app = ["--app", "net.example.wallpaper"]
        let install = try await installed.world.program.run(["simulate", "install"] + app)
        #expect(install.status == 0)
        #expect(
            install.output.contains(
                "stage  essential  1        essential  20.2 kB   not staged yet"
            )
        )
        let update = try await installed.world.program.run(["simulate", "update"] + app)
        #expect(!update.output.contains("stage "))
        let space = try await installed.world.program.run(
            ["simulate", "install", "--fault", "no-space"] + app
        )
        #expect(space.status == 40)
        let network = try await installed.world.program.run(
            ["simulate", "install", "--fault", "no-network"] + app
        )
        #expect(network.status == 75)
        let stage = try await installed.world.program.run(
            ["simulate", "update", "--stage", "--progress", "none"] + app
        )
        #expect(stage.status == 0)
        #expect(!FileStatus.exists(installed.container))
    }

    @Test func applicationsAreListedWithWhatIsWrongWithThem() async throws {
        let installed = try await Installed()
        try installed.write(Array("{".utf8), to: "broken.json")
        let list = try await installed.run("app", "list")
        #expect(list.status == 3)
        #expect(list.output.contains("net.example.wallpaper  1.0"))
        #expect(list.output.contains("broken                 -"))
        let file = installed.folder.appending("broken.json")
        let validation = try await installed.run("app", "validate", file.string)
        #expect(validation.status == 3)
        let show = try await installed.run("app", "show", "net.example.wallpaper")
        #expect(show.status == 0)
        #expect(show.output.contains(#""applicationGroup" : "net.example""#))
    }
}
