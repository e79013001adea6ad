import FoundationEssentials
import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The findings of `doctor` on faulty machines, and their hints.
@Suite(.server, .directory, .mountNamespace)
struct DoctorTests {
    private struct Report: Decodable {
        struct Check: Decodable, Equatable {
            var level, subject, finding: String
            var hint: String?
        }
        var checks: [Check]

        func problems() -> [Check] { checks.filter { $0.level == "problem" } }
    }

    /// An application that is registered and whose packs are staged.
    private func installed() async throws -> Installed {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        return installed
    }

    private func report(
        _ installed: Installed,
        _ options: String...,
        status: Int32
    ) async throws -> Report {
        let ending = try await installed.world.program.run(["doctor", "--json"] + options)
        #expect(ending.status == status, "\(ending)")
        #expect(ending.error == "")
        let report = try JSONDecoder().decode(Report.self, from: Data(ending.output.utf8))
        for check in report.checks {
            #expect(["ok", "note", "problem"].contains(check.level))
            #expect((check.hint == nil) == (check.level == "ok"), "\(check)")
        }
        return report
    }

    /// Runs the command of a hint.
    private func follow(
        _ check: Report.Check?,
        _ installed: Installed
    ) async throws -> Program.Ending {
        let hint = try #require(check?.hint)
        let words = try await HintedCommand.words(in: "hint: \(hint)")
        return try await installed.world.program.run(words)
    }

    /// The user could replace a file that a command of root is about to change by a link.
    @Test func rootGetsNoHintToChangeAContainerOfAnotherUser() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        let path = installed.world.container.string
        let source = installed.world.source
        let ending = try await installed.world.program.run(["prefetch", "--quiet"] + source)
        #expect(ending.status == 0, "\(ending)")
        #expect(unsafe chown(path, 65534, 65534) == 0)
        #expect(unsafe chmod("\(path)/locks", 0o700) == 0)
        try Directory.open(installed.world.container).removeTree("history")
        let report = try await report(installed, "--container", path, status: 3)
        let hints = report.checks.filter { $0.subject.hasPrefix("'\(path)/") }.compactMap(\.hint)
        #expect(!hints.isEmpty && hints.allSatisfy { $0.hasPrefix("as user 65534, ") }, "\(hints)")
        #expect(!hints.contains { $0.contains("chown") }, "\(hints)")
        let missing = report.problems().first { $0.subject == "'\(path)/history'" }
        #expect(missing?.hint?.hasPrefix("as user 65534, run ") ?? false, "\(report)")
    }

    @Test func commandsThatReadMakeNoDirectories() async throws {
        let installed = try await installed()
        let container = try Directory.open(installed.container)
        for name in ["downloads", "history", "locks"] as [FilePath.Component] {
            try container.removeTree(name)
        }
        for command in ["status", "du", "ls", "why", "metrics"] {
            let ending = try await installed.run(command)
            #expect(ending.status == 0, "\(command): \(ending)")
        }
        let report = try await report(installed, status: 3)
        for name in ["downloads", "history", "locks"] {
            #expect(!FileStatus.exists(installed.container.appending(name)))
            #expect(report.problems().contains { $0.subject.hasSuffix("/\(name)'") }, "\(name)")
        }
    }

    @Test(arguments: [[], ["--app", "net.example.wallpaper"]])
    func aMachineWithoutFaultsHasNoProblem(options: [String]) async throws {
        let installed = try await installed()
        let text = try await installed.world.program.run(["doctor"] + options)
        #expect(text.status == 0)
        #expect(text.output.hasSuffix("\nno problems found\n"), "\(text)")
        // The tests of root have a separate '/run', without systemd.
        if geteuid() == 0, text.output.contains("no time source keeps it") {
            #expect(text.output.contains("Network Time Protocol"), "\(text)")
        }
        let report = try await report(installed, status: 0)
        #expect(report.problems() == [])
        let good = report.checks.filter { $0.level == "ok" }.map(\.subject)
        for subject in ["registration of net.example.wallpaper", "container", "space", "manifest"] {
            #expect(good.contains(subject), "\(subject)")
        }
    }

    @Test func aRegistrationThatIsNotValidIsAProblem() async throws {
        let installed = try await installed()
        try installed.write(Array("{".utf8), to: "net.example.broken.json")
        let subject = "registration of net.example.broken"
        let problems = try await report(installed, status: 3).problems()
        #expect(problems.map(\.subject) == [subject])
        #expect(try await follow(problems.first, installed).status == 3)
        let named = try await report(installed, "--app", "net.example.broken", status: 3)
        #expect(named.problems() == problems)
        let unknown = try await installed.run("doctor", "--app", "net.example.unknown")
        #expect(unknown.status == 11)
    }

    @Test func aManifestThatIsAMissingFileIsAProblem() async throws {
        var installed = try await installed()
        installed.registration.manifestURLs = ["file:///no/such/manifest.json"]
        try installed.install()
        let problems = try await report(installed, status: 3).problems()
        #expect(
            problems.map(\.finding) == [
                "manifestURLs: 'file:///no/such/manifest.json' does not exist"
            ]
        )
    }

    /// The result is the same after one and after two failed runs.
    @Test func essentialPacksThatAreMissingAndTheLastFailureAreProblems() async throws {
        var installed = try await Installed()
        let pack = try SamplePack.small(.aurora)
        try installed.world.publish(pack)
        installed.world.server.answer(pack.path, with: .status(404))
        for _ in 1...2 {
            let prefetch = try await installed.run("prefetch", "--all", "--attempts", "1")
            #expect(prefetch.status == 21)
        }
        let report = try await report(installed, status: 3)
        let problems = report.problems()
        #expect(
            problems.map(\.subject) == [
                "packs of net.example.wallpaper", "pack 'aurora' of net.example.wallpaper",
            ]
        )
        #expect(problems.first?.finding == "1 essential pack is missing: 'aurora'")
        #expect(problems.last?.finding.hasPrefix("2 runs in a row failed: ") == true)
        let notes = report.checks.filter { $0.level == "note" }.map(\.finding)
        #expect(notes.contains("'install' is not complete"))
        try installed.world.publish(pack)
        #expect(try await follow(problems.first, installed).status == 0)
        #expect(try await self.report(installed, status: 0).problems() == [])
    }

    @Test func aDamagedRecordOfAStagedPackIsRepaired() async throws {
        let installed = try await installed()
        let generations = installed.container.appending("generations/aurora")
        let generation = try #require(try Directory.open(generations).entries().first?.name)
        let record = try Directory.open(generations.appending(generation))
        try record.write(Array("{".utf8), to: "pack.json", durably: false)
        #expect(try await installed.run("status").status == 41)
        let problems = try await report(installed, status: 3).problems()
        #expect(problems.map(\.finding) == ["is damaged"])
        #expect(problems.first?.subject.hasSuffix("/pack.json'") == true)
        let repair = try await follow(problems.first, installed)
        #expect(repair.status == 0, "\(repair)")
        #expect(try await report(installed, status: 0).problems() == [])
    }

    /// The other application of the group comes first in the order of names.
    @Test func theHintForAPackNamesTheApplicationThatOffersIt() async throws {
        let installed = try await installed()
        let lions = try SamplePack.small(try PackID("lions"))
        try installed.addOther(offering: [lions])
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        let generations = installed.container.appending("generations/lions")
        let generation = try #require(try Directory.open(generations).entries().first?.name)
        let directory = try Directory.open(generations.appending(generation))
        try directory.write(Array("{".utf8), to: "pack.json", durably: false)
        let problems = try await report(installed, status: 3).problems()
        #expect(problems.map(\.finding) == ["is damaged"])
        // Repairing for the application that does not offer the pack leaves it unchanged.
        let wrong = try await installed.run("repair", "--app", "net.example.wallpaper")
        #expect(wrong.status == 3, "\(wrong)")
        #expect(
            wrong.error == """
                stagepack: warning: pack 'lions' of 'net.example.zoo' is damaged, too
                hint: run 'stagepack repair lions --app net.example.zoo'

                """
        )
        #expect(try await report(installed, status: 3).problems() == problems)
        let repair = try await follow(problems.first, installed)
        #expect(repair.status == 0, "\(repair)")
        #expect(try await report(installed, status: 0).problems() == [])
    }

    @Test func aManifestThatWasNeverAcceptedIsAProblemWithTheReason() async throws {
        let installed = try await Installed()
        installed.world.server.answer("/manifest.json", with: .status(404))
        #expect(try await installed.run("prefetch", "--all", "--attempts", "1").status == 10)
        let problems = try await report(installed, status: 3).problems()
        #expect(
            problems.map(\.subject) == ["manifest", "last run of net.example.wallpaper"]
        )
        #expect(problems.first?.finding == "net.example.wallpaper: none was accepted yet")
        #expect(problems.last?.finding.contains("was answered with status 404") == true)
    }

    @Test func serversAreAskedOnlyOnline() async throws {
        let installed = try await installed()
        installed.world.server.answer("/manifest.json", with: .status(404))
        #expect(try await report(installed, status: 0).problems() == [])
        let online = try await report(installed, "--online", "--attempts", "1", status: 3)
        #expect(online.problems().map(\.subject) == ["server of net.example.wallpaper"])
        #expect(try installed.history()?.lastRun?.problem == nil)
    }

    /// Another container would not help: the manifest belongs to another application than the registration.
    @Test func aManifestOfAnotherApplicationIsAFaultOfTheRegistration() async throws {
        let installed = try await installed()
        let other = Manifest(application: try ApplicationID("org.never"), revision: 9, packs: [])
        installed.world.server.answer("/manifest.json", with: .content(other.json()))
        let prefetch = try await installed.run("prefetch", "--app", "net.example.wallpaper")
        #expect(prefetch.status == 12, "\(prefetch)")
        let hint = "correct 'manifestURLs' or 'application' in the registration"
        #expect(prefetch.error.hasSuffix("\nhint: \(hint)\n"), "\(prefetch)")
        let online = try await report(installed, "--online", "--attempts", "1", status: 3)
        let problem = online.problems().first { $0.subject == "server of net.example.wallpaper" }
        #expect(problem?.hint?.hasPrefix("\(hint); to try again, run ") == true, "\(online)")
    }

    @Test func aCertificateThatIsRefusedIsAProblemOnline() async throws {
        var installed = try await installed()
        let front = try await TLSFront(
            port: installed.world.server.port,
            below: installed.world.directory.path
        )
        installed.registration.manifestURLs = ["\(front.baseURL)/manifest.json"]
        try installed.install()
        let online = try await report(installed, "--online", "--attempts", "1", status: 3)
        let problem = online.problems().first { $0.subject == "server of net.example.wallpaper" }
        let hint = "if the server has an authority of its own, pass it with --cacert"
        #expect(problem?.hint?.contains(hint) == true, "\(online)")
        withExtendedLifetime(front) {}
    }

    /// The quota is less than the size of all packs, or than that of the essential pack.
    @Test(arguments: [(2, "note"), (1, "problem")])
    func aContainerOverItsQuotaIsReported(packs: Int, level: String) async throws {
        var installed = try await Installed()
        let essential = try SamplePack.small(.aurora)
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        let other = try SamplePack.small(try PackID("other"), policy: .prefetch(events))
        try installed.world.publish(essential, other)
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        #expect(try installed.staged() == ["aurora": 1, "other": 1])
        let sizes = [essential, other].prefix(packs).map { pack in
            StoredGeneration.size(pack.pack.installedSize, fileCount: pack.pack.fileCount).rawValue
        }
        installed.registration.quota = ByteCount(sizes.reduce(-1, +))
        try installed.install()
        let isProblem = level == "problem"
        let report = try await report(installed, status: isProblem ? 3 : 0)
        let finding = try #require(report.checks.first { $0.subject == "quota" })
        #expect(finding.level == level && finding.hint != nil, "\(finding)")
        #expect(finding.finding.contains("over its quota") == isProblem, "\(finding)")
        let ending = try await follow(finding, installed)
        #expect(ending.status == 0, "\(ending)")
        if !isProblem { #expect(try installed.staged() == ["aurora": 1]) }
    }

    @Test(
        .root("only root has registrations of the system"),
        arguments: ["/etc/stagepack", "/etc/stagepack/apps.d"]
    )
    func aDirectoryOfRegistrationsThatOthersMayChangeIsAProblem(path: String) async throws {
        let installed = try await installed()
        let location = installed.world.directory.path.string + path
        #expect(unsafe chmod(location, 0o775) == 0)
        let problems = try await report(installed, status: 3).problems()
        #expect(problems.map(\.subject) == ["registrations"])
        #expect(problems.map(\.hint) == ["as root, run 'chmod go-w \(path)'"])
        #expect(unsafe chmod(location, 0o755) == 0)
        #expect(unsafe chown(location, 65534, 0) == 0)
        let owned = try await report(installed, status: 3).problems()
        #expect(owned.map(\.hint) == ["as root, run 'chown root \(path)'"])
    }

    @Test func aMountWithoutTimesOfAccessIsAProblemWhereThereIsAQuota() async throws {
        var installed = try await installed()
        let script = "mount -o remount,bind,noatime /var/lib || exit 99; exec \"$@\""
        installed.world.program.wrapper =
            installed.world.program.wrapper.dropLast()
            + ["/bin/sh", "-c", script, "sh", try Program.path.string]
        let checks = try await report(installed, status: 0).checks
        #expect(checks.filter { $0.subject == "access times" }.map(\.level) == ["note"])
        installed.registration.quota = .mebibytes(100)
        try installed.install()
        let problems = try await report(installed, status: 3).problems()
        #expect(
            problems.map(\.hint) == ["as root, run 'mount -o remount,relatime /var/lib'"]
        )
    }

    @Test(.root("the daemon's configuration is root's"))
    func aConfigurationWithWhichTheDaemonWouldNotStartIsAProblem() async throws {
        let installed = try await installed()
        let folder = try installed.world.directory.makeDirectory("etc").makeDirectory("stagepack")
        for (json, finding) in [
            (#"{"conections": 3}"#, "there is no setting 'conections'"),
            (#"{"certificateAuthorities": "/nowhere.pem"}"#, "'certificateAuthorities': "),
        ] {
            try folder.write(Array(json.utf8), to: "stagepackd.json", durably: false)
            let problems = try await report(installed, status: 3).problems()
            #expect(problems.map(\.subject) == ["daemon's configuration"])
            #expect(problems.first?.finding.contains(finding) == true)
        }
        try folder.write(Array("{}".utf8), to: "stagepackd.json", durably: false)
        let report = try await report(installed, status: 0)
        #expect(report.checks.contains { $0.finding == "'/etc/stagepack/stagepackd.json'" })
    }

    @Test func theConfigurationOfTheUsersOwnDaemonIsChecked() async throws {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.root("prefetch").status == 0)
        let home = machine.installed.world.directory.path.appending("run/home/.config/stagepack")
        try FileManager.default.createDirectory(
            atPath: home.string,
            withIntermediateDirectories: true
        )
        let folder = try Directory.open(home)
        func configure(_ json: String) throws {
            let mode: FilePermissions = [.ownerReadWrite, .groupRead, .otherRead]
            let bytes = Array(json.utf8)
            try folder.write(bytes, to: "stagepackd.json", durably: false, exactly: mode)
        }
        try configure("{}")
        let good = try await machine.user("doctor")
        #expect(good.status == 0, "\(good)")
        let name = "own daemon's configuration"
        let path = "/run/home/.config/stagepack/stagepackd.json"
        #expect(good.output.contains("ok: \(name): '\(path)'"), "\(good)")
        try configure(#"{"conections": 3}"#)
        let ending = try await machine.user("doctor")
        #expect(ending.status == 3, "\(ending)")
        #expect(ending.output.contains("problem: \(name): "), "\(ending)")
        #expect(ending.output.contains("there is no setting 'conections'"), "\(ending)")
        #expect(
            ending.output.contains("run 'systemctl --user restart stagepackd.service'"),
            "\(ending)"
        )
    }

    @Test func aFullDiskOfTheUsersOwnDaemonIsAProblem() async throws {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.root("prefetch").status == 0)
        let home = machine.installed.world.directory.path.appending("run/home")
        for folder in [".config/stagepack", ".local/state/stagepack/transfers"] {
            try FileManager.default.createDirectory(
                atPath: home.appending(folder).string,
                withIntermediateDirectories: true
            )
        }
        let folder = try Directory.open(home.appending(".config/stagepack"))
        func leaveFree(_ bytes: Int) throws {
            let mode: FilePermissions = [.ownerReadWrite, .groupRead, .otherRead]
            let json = Array(#"{"reserve": \#(bytes)}"#.utf8)
            try folder.write(json, to: "stagepackd.json", durably: false, exactly: mode)
        }
        try leaveFree(0)
        let good = try await machine.user("doctor")
        #expect(good.status == 0, "\(good)")
        #expect(!good.output.contains("daemon's disk"), "\(good)")
        try leaveFree(1 << 50)
        let ending = try await machine.user("doctor")
        #expect(ending.status == 3, "\(ending)")
        #expect(
            ending.output.contains(
                "problem: own daemon's disk: '/run/home/.local/state/stagepack/transfers' has "
            ),
            "\(ending)"
        )
        #expect(ending.output.contains("its transfers wait\n"), "\(ending)")
    }

    @Test(
        .rootInMountNamespace,
        arguments: [
            (
                "ro", "is on a read-only file system",
                "repair the file system, and make it writable"
            ),
            (
                "size=256m,nr_inodes=1", "is on a file system without free inodes",
                "delete files ('df -i' counts them) or use a file system with more inodes"
            ),
        ] as [(String, String, String)]
    )
    func aDiskOfTheDaemonThatCannotBeWrittenIsAProblem(
        options: String,
        finding: String,
        hint: String
    ) async throws {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.root("prefetch").status == 0)
        let state = "/var/lib/stagepack/transfers"
        let script = """
            mkdir -p "$0" && mount -t tmpfs -o \(options) none "$0" || exit 99
            exec "$@"
            """
        machine.installed.world.program.wrapper =
            machine.installed.world.program.wrapper.dropLast() + [
                "/bin/sh", "-c", script, state, try Program.path.string,
            ]
        let ending = try await machine.root("doctor")
        #expect(ending.status == 3, "\(ending)")
        let lines =
            "problem: daemon's disk: '\(state)' \(finding): its transfers wait\n  hint: \(hint)\n"
        #expect(ending.output.contains(lines), "\(ending)")
    }

    @Test func notesReportFailuresInTheSystemsContainer() async throws {
        var machine = try await SharedMachine()
        try machine.publish(version: 1)
        #expect(try await machine.root("prefetch").status == 0)
        let ending = try await machine.user("doctor")
        #expect(ending.status == 0, "\(ending)")
        let container = "ok: container: '\(SharedMachine.systemContainer)' (system)"
        #expect(ending.output.contains(container))
        try machine.publish(version: 2)
        let pack = try SamplePack.small(.aurora, version: 2)
        machine.installed.world.server.answer(pack.path, with: .status(404))
        #expect(try await machine.root("prefetch", "--attempts", "1").status == 21)
        let failed = try await machine.user("doctor")
        #expect(failed.status == 0, "\(failed)")
        let note = "note: pack 'aurora' of net.example.wallpaper: 1 run failed"
        #expect(failed.output.contains(note))
    }

    @Test func serversAreNotAskedOffline() async throws {
        var installed = try await installed()
        installed.world.program.environment["STAGEPACK_OFFLINE"] = "1"
        let report = try await report(installed, "--online", status: 0)
        #expect(!report.checks.contains { $0.subject.hasPrefix("server of ") }, "\(report)")
        let servers = report.checks.first { $0.subject == "servers" }
        #expect(servers?.finding == "not asked: STAGEPACK_OFFLINE is set")
        #expect(servers?.level == "note")
    }

    /// No timer stages the pack, and the application may not request it again.
    @Test func aPackOnDemandThatFailedOnceIsANote() async throws {
        var installed = try await Installed()
        let rare = try SamplePack.small(try PackID("rare"), policy: .onDemand)
        try installed.world.publish(try .small(.aurora), rare)
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        installed.world.server.answer(rare.path, with: .status(404))
        let load = ["load", "rare", "--attempts", "1", "--app", "net.example.wallpaper"]
        #expect(try await installed.world.program.run(load).status == 21)
        let failed = try await report(installed, status: 0)
        let check = failed.checks.first { $0.subject == "pack 'rare' of net.example.wallpaper" }
        #expect(check?.level == "note")
        #expect(check?.hint == "run 'stagepack load rare --app net.example.wallpaper'")
        installed.world.server.answer(rare.path, with: .content(rare.archive))
        #expect(try await follow(check, installed).status == 0)
        let well = try await report(installed, status: 0)
        #expect(!well.checks.contains { $0.subject == check?.subject }, "\(well)")
    }

    @Test func aRunThatWasOfflineIsNoProblem() async throws {
        var installed = try await installed()
        try installed.world.publish(
            try .small(.aurora),
            try .small(try PackID("late"), policy: .prefetch([.subsequentUpdate]))
        )
        #expect(
            try await installed.run(
                "fetch",
                "--manifest-only",
                "--app",
                "net.example.wallpaper",
                "--quiet"
            ).status == 0
        )
        let offline = ["prefetch", "--all", "--event", "update", "--offline"]
        #expect(try await installed.world.program.run(offline).status == 75)
        let report = try await report(installed, status: 0)
        #expect(!report.checks.contains { $0.subject.hasPrefix("pack 'late'") }, "\(report)")
        let pending = report.checks.first { $0.finding == "'update' is not complete" }
        #expect(pending?.level == "note", "\(report)")
    }
}
