import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A user's container that the user cannot change or read: because of root's files, wrong modes, or a read-only disk.
@Suite(.server, .directory, .rootInMountNamespace)
struct ContainerFailureTests {
    private var machine: SharedMachine

    init() async throws {
        machine = try await SharedMachine()
        try machine.publish(version: 1)
    }

    /// The user's container, as the test sees it.
    private var container: String {
        machine.installed.world.directory.path.string + SharedMachine.userContainer.string
    }

    /// Changes files of the user's container as root.
    private func shell(_ command: String) async throws {
        let program = Program(wrapper: ["/bin/sh", "-c", "cd \"$0\" && \(command)", container])
        #expect(try await program.run([]).status == 0, "\(command)")
    }

    /// Returns the lines of `doctor` that contain a word.
    private func lines(of doctor: Program.Ending, with word: String) -> [Substring] {
        doctor.output.split(separator: "\n").filter { $0.contains(word) }
    }

    @Test func aRemovalThatCannotTakeTheLeaseChangesNothing() async throws {
        #expect(try await machine.user("prefetch").status == 0)
        try await shell("chown -R 0:0 generations/aurora")
        let removal = try await machine.user("remove", "aurora")
        #expect(removal.status == 41, "\(removal)")
        #expect(removal.error.contains("/lease': Permission denied\n"), "\(removal)")
        let hint = "hint: run 'stagepack doctor --app net.example.wallpaper'\n"
        #expect(removal.error.hasSuffix(hint), "\(removal)")
        #expect(try await machine.user("path", "aurora").status == 0)

        let doctor = try await machine.user("doctor")
        #expect(doctor.status == 3, "\(doctor)")
        let command = "chown -R 65534 \(SharedMachine.userContainer)"
        #expect(lines(of: doctor, with: "chown") == ["  hint: as root, run '\(command)'"])
        try await shell("chown -R 65534 .")
        #expect(try await machine.user("remove", "aurora").output == "aurora: removed\n")
    }

    @Test func theOwnerOfAReadOnlyContainerLearnsTheError() async throws {
        #expect(try await machine.user("prefetch").status == 0)
        try await shell("chmod -R a-w .")
        let removal = try await machine.user("remove", "aurora")
        #expect(removal.status == 41, "\(removal)")
        #expect(removal.error.contains("Permission denied\n"), "\(removal)")
        let hint = "hint: run 'stagepack doctor --app net.example.wallpaper'\n"
        #expect(removal.error.hasSuffix(hint), "\(removal)")
        let doctor = try await machine.user("doctor")
        let command = "chmod -R u+w \(SharedMachine.userContainer)"
        #expect(lines(of: doctor, with: "chmod") == ["  hint: run '\(command)'"], "\(doctor)")
        try await shell("chmod -R u+w .")
        #expect(try await machine.user("doctor").status != 3)
        #expect(try await machine.user("remove", "aurora").output == "aurora: removed\n")
    }

    @Test func theOwnerOfAnUnreadableContainerLearnsItsMode() async throws {
        #expect(try await machine.user("prefetch").status == 0)
        try await shell("chmod 0 .")
        let status = try await machine.user("status")
        #expect(status.status == 41, "\(status)")
        let hint = "hint: run 'stagepack doctor --app net.example.wallpaper'\n"
        #expect(status.error.hasSuffix(hint), "\(status)")
        let doctor = try await machine.user("doctor")
        let command = "chmod -R u+rwX \(SharedMachine.userContainer)"
        #expect(lines(of: doctor, with: "chmod") == ["  hint: run '\(command)'"], "\(doctor)")
    }

    /// The simulation has no option for another directory.
    @Test func aSimulationWithoutADirectoryForTemporaryFilesNamesTheVariable() async throws {
        var machine = machine
        machine.userEnvironment["TMPDIR"] = "/dev/null/nowhere"
        let ending = try await machine.user("simulate", "install")
        #expect(ending.status == 41, "\(ending)")
        let hint = "set TMPDIR to a directory that this user can write, and that has free space"
        #expect(ending.error.hasSuffix("hint: \(hint)\n"), "\(ending)")
    }

    @Test func aReadOnlyFileSystemIsNamedToTheOwner() async throws {
        var installed = machine.installed
        let app = ["--app", "net.example.wallpaper"]
        #expect(try await installed.world.program.run(["prefetch"] + app).status == 0)
        let mount = """
            mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 99
            exec "$@"
            """
        installed.world.program.wrapper =
            installed.world.program.wrapper.dropLast() + [
                "/bin/sh", "-c", mount, SharedMachine.systemContainer.string,
                try Program.path.string,
            ]
        let doctor = try await installed.world.program.run(["doctor"] + app)
        let line =
            "problem: container: this user cannot write it\n  hint: make the file system writable\n"
        #expect(doctor.output.contains(line), "\(doctor)")
        let removal = try await installed.world.program.run(["remove", "aurora"] + app)
        #expect(removal.status == 41, "\(removal)")
        #expect(removal.error.contains("Read-only file system\n"), "\(removal)")
        #expect(removal.error.contains("hint: make the file system writable"), "\(removal)")
    }
}

/// Messages about a registration, a container or a file that the user named and that cannot be used.
@Suite(.server, .directory, .mountNamespace)
struct UnusableScopeTests {
    private var installed: Installed

    init() async throws {
        installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--all").status == 0)
    }

    @Test func aRegistrationThatLeadsNowhereIsAFailure() async throws {
        try installed.uninstall()
        let name: FilePath.Component = "net.example.wallpaper.json"
        try Directory.open(installed.folder).createLink(FilePath(name), to: "/nowhere")
        let error = "apps.d/\(name)': No such file or directory"
        let doctor = try await installed.run("doctor")
        #expect(doctor.status == 3 && doctor.output.contains(error), "\(doctor)")
        let prefetch = try await installed.run("prefetch", "--all")
        #expect(prefetch.status == 11 && prefetch.error.contains(error), "\(prefetch)")
        let collection = try await installed.run("gc", "--unregistered")
        #expect(collection.status == 0, "\(collection)")
        #expect(try installed.staged() == ["aurora": 1])
    }

    @Test(arguments: ["status", "ls", "du", "info aurora", "why", "why aurora", "verify"])
    func aContainerThatCannotBeReadHidesNoOther(command: String) async throws {
        try installed.addUnusableApplication()
        let words = command.split(separator: " ").map(String.init)
        let ending = try await installed.world.program.run(words)
        #expect(ending.status == 41, "\(ending)")
        #expect(ending.output.contains("aurora"), "\(ending)")
        #expect(ending.error.contains("groups/a.broken"), "\(ending)")
        let json = try await installed.world.program.run(words + ["--json"])
        #expect(json.status == 41 && json.error == "", "\(json)")
        try check(json, of: words[0])
    }

    /// A JSON result contains the failures as members.
    @Test(arguments: ["gc", "gc --dry-run", "gc --unregistered"])
    func aPartialFailureOfACollectionIsInItsResult(command: String) async throws {
        try installed.addUnusableApplication()
        let words = command.split(separator: " ").map(String.init) + ["--json"]
        let ending = try await installed.world.program.run(words)
        #expect(ending.status == 41 && ending.error == "", "\(ending)")
        let name = words[1] == "--unregistered" ? "gc-unregistered" : "gc"
        try check(ending, of: name)
        let isDryRun = words[1] == "--dry-run"
        #expect(ending.output.contains("\"isDryRun\" : \(isDryRun)"), "\(ending)")
    }

    private func check(_ ending: Program.Ending, of name: String) throws {
        let value = try JSONNode(json: Array(ending.output.utf8)).value
        #expect(try OutputSchemas().faults(of: value, as: name) == [], "\(ending)")
        #expect(value["error"] != nil && ending.output.contains("\"status\" : 41"), "\(ending)")
        #expect(value["failures"] != nil, "\(ending)")
    }

    @Test func aContainerThatIsMissingIsNamed() async throws {
        for words in [["path", "aurora"], ["ls"], ["verify"], ["why"], ["why", "aurora"]] {
            let ending = try await installed.world.program.run(
                words + ["--container", "/nowhere"]
            )
            #expect(ending.status == 41, "\(words): \(ending)")
            #expect(ending.error.contains("'/nowhere'"), "\(words): \(ending)")
        }
    }

    @Test func filesAndApplicationsThatTheUserNamedGetHintsOfTheirOwn() async throws {
        let path = "hint: pass the path of the registration\n"
        let list = "hint: run 'stagepack app list' to see the applications that are registered\n"
        let root = "--root: cannot open '/nowhere': No such file or directory\n"
        let rows: [(String, Int32, String)] = [
            ("app register /nowhere.json", 64, path),
            ("simulate install --registration /nowhere.json", 64, path),
            ("app show net.nowhere.game", 11, list), ("app unregister net.nowhere.game", 11, list),
            ("prefetch --root /nowhere --manifest \(installed.world.manifestURL)", 64, root),
        ]
        for (command, status, last) in rows {
            let words = command.split(separator: " ").map(String.init)
            let ending = try await installed.world.program.run(words)
            #expect(ending.status == status, "\(command): \(ending)")
            #expect(ending.error.hasSuffix(last), "\(command): \(ending)")
        }
    }

    @Test(arguments: [("no-space", 40), ("no-network", 75)] as [(String, Int32)])
    func aSimulatedFaultIsNamedAsSuch(fault: String, status: Int32) async throws {
        let file: FilePath.Component = "named.json"
        let folder = installed.world.directory
        try folder.write(installed.registration.json(), to: file, durably: false)
        let path = folder.path.appending(file).string
        for source in [["--app", "net.example.wallpaper"], ["--registration", path]] {
            let ending = try await installed.world.program.run(
                ["simulate", "install", "--fault", fault] + source
            )
            #expect(ending.status == status, "\(ending)")
            #expect(ending.error.hasSuffix("hint: this is the simulated fault\n"), "\(ending)")
        }
    }

    /// Another process stages the first version of the only pack, which has no generation yet.
    @Test func aContainerInWhichAPackIsStagedIsKept() async throws {
        #expect(
            try await installed.run("remove", "aurora", "--app", "net.example.wallpaper").status
                == 0
        )
        var installed = installed
        let pack = try SamplePack.large(try .aurora, version: 2, mebibytes: 8)
        try installed.world.publish(pack)
        let answer = Answer.content(pack.archive).stalled(after: 2 << 20)
        installed.world.server.answer(pack.path, with: answer)
        let machine = installed
        _ = try await machine.world.program.run(["prefetch", "--all"]) { running in
            let downloads = machine.container.appending("downloads")
            try await poll { partSize(below: downloads) > 1 << 20 }
            try machine.uninstall()
            let ending = try await machine.run("gc", "--unregistered")
            #expect(ending.output.contains("1 pack is in use"), "\(ending)")
            #expect(partSize(below: downloads) > 1 << 20)
            #expect(try machine.history() != nil)
            running.send(SIGINT)
        }
        let ending = try await machine.run("gc", "--unregistered")
        #expect(ending.status == 0, "\(ending)")
        #expect(!FileStatus.exists(machine.container))
    }
}

/// A user without a home directory.
@Suite(.server, .directory, .severalUsers)
struct MissingHomeTests {
    @Test(arguments: ["status", "doctor", "load aurora --app net.nowhere.game"])
    func aMissingHomeIsNamed(command: String) async throws {
        for home in ["", "relative"] {
            let program = Program(
                environment: ["HOME": home],
                wrapper: Stranger.command + [try Program.path.string]
            )
            let ending = try await program.run(command.split(separator: " ").map(String.init))
            let text = "; HOME is not set, so registrations of this user are not read"
            #expect((ending.output + ending.error).contains(text), "\(ending)")
        }
    }
}
