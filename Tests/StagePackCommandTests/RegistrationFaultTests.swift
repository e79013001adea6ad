import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Faults of registrations, as `app validate`, `app register` and other commands name them.
@Suite(.server, .directory, .mountNamespace)
struct RegistrationFaultTests {
    private let installed: Installed

    init() async throws { installed = try await Installed() }

    private var file: String {
        installed.folder.appending("net.example.wallpaper.json").string
    }

    /// The path of the registration as the program sees it.
    private var name: String {
        geteuid() == 0 ? "/etc/stagepack/apps.d/net.example.wallpaper.json" : file
    }

    /// Creates a registration in which one member has another name.
    private func write(_ member: String, as other: String, to name: String) throws -> String {
        let text = String(decoding: installed.registration.json(), as: UTF8.self)
            .replacing("\"\(member)\"", with: "\"\(other)\"")
        let component = try #require(FilePath.Component(name))
        try installed.world.directory.write(Array(text.utf8), to: component, durably: false)
        return installed.world.directory.path.appending(name).string
    }

    @Test(
        .root("only root reads no others' registrations"),
        arguments: [
            (0o666, 0, "chmod go-w FILE"), (0o644, 65534, "chown root FILE"),
            (0o664, 65534, "chown root FILE && chmod go-w FILE"),
        ] as [(mode_t, uid_t, String)]
    )
    func aRegistrationThatOthersMayWriteIsNamedWithItsRemedy(
        mode: mode_t,
        owner: uid_t,
        remedy: String
    ) async throws {
        unsafe #expect(chmod(file, mode) == 0)
        unsafe #expect(chown(file, owner, gid_t.max) == 0)
        let text = "run '\(remedy.replacing("FILE", with: name))'"
        let validated = try await installed.run("app", "validate", name)
        #expect(validated.status == 3, "\(validated)")
        #expect(validated.output.contains(text), "\(validated)")
        for command in [["doctor"], ["prefetch", "--attempts", "1"]] {
            let words = command + ["--app", "net.example.wallpaper"]
            let ending = try await installed.world.program.run(words)
            #expect((ending.output + ending.error).contains(text), "\(ending)")
        }
        unsafe #expect(chmod(file, 0o644) == 0)
        unsafe #expect(chown(file, 0, gid_t.max) == 0)
        #expect(try await installed.run("app", "validate", name).status == 0)
    }

    @Test func whyHintsToRegisterAnApplicationIfThereIsNone() async throws {
        try installed.uninstall()
        let ending = try await installed.world.program.run(["why"])
        #expect(ending.status == 0, "\(ending)")
        let hint = "hint: no application is registered: pass --container DIR, or register one with "
        #expect(ending.error.contains(hint), "\(ending)")
    }

    /// The name of the file is wrong, and its content is not.
    @Test func aRegistrationInAFileOfAnotherNameIsRenamed() async throws {
        try installed.write(installed.registration.json(), to: "net.example.other.json")
        let ending = try await installed.run("prefetch", "--app", "net.example.other")
        #expect(ending.status == 11, "\(ending)")
        #expect(ending.error.hasSuffix("hint: correct the file, or remove it\n"), "\(ending)")
        try installed.uninstall()
        let renamed = try await installed.run("prefetch", "--app", "net.example.other")
        let hint = "hint: rename it to 'net.example.wallpaper.json', or remove it\n"
        #expect(renamed.error.hasSuffix(hint), "\(renamed)")
    }

    /// Installs a registration of a package, and returns the program that finds it.
    private func program(withPackage registration: Registration) throws -> Program {
        let share = try installed.world.directory.makeDirectory("share")
        let folder = try Directory.make(share.path.appending("stagepack/apps.d"))
        let name = try #require(FilePath.Component("\(registration.application).json"))
        try folder.write(registration.json(), to: name, durably: false)
        var program = installed.world.program
        let mount = "mount --bind '\(share.path)' /usr/share && exec \"$@\""
        program.wrapper =
            program.wrapper.dropLast() + ["/bin/sh", "-c", mount, "sh", try Program.path.string]
        return program
    }

    /// An update of the package does not change the file of the site.
    @Test(.root("only root installs registrations of packages"), arguments: ["1.0", "2.0"])
    func anOverrideOfAnotherVersionIsNoted(version: String) async throws {
        var package = installed.registration
        package.version = version
        let program = try program(withPackage: package)
        let ending = try await program.run(["doctor", "--app", "net.example.wallpaper"])
        let start = "note: registration of net.example.wallpaper: "
        let file = "stagepack/apps.d/net.example.wallpaper.json'"
        let note = """
            \(start)its version is 1.0, and that of '/usr/share/\(file) is 2.0
              hint: as root, set 'version' in '/etc/\(file) to '2.0' if that version is installed

            """
        #expect(ending.output.contains(note) == (version == "2.0"), "\(ending)")
        #expect(ending.output.contains(start) == (version == "2.0"), "\(ending)")
    }

    /// The package does not own the file that overrides its registration.
    @Test(.root("only root installs registrations of packages"))
    func aWrongOverrideIsCorrectedOrRemoved() async throws {
        let id = "net.example.wallpaper"
        let program = try program(withPackage: installed.registration)
        try installed.write(Array("{}".utf8), to: "\(id).json")
        let ending = try await program.run(["prefetch", "--app", id])
        #expect(ending.status == 11, "\(ending)")
        let file = "/usr/share/stagepack/apps.d/\(id).json"
        let hint = "hint: correct the file, or remove it: then '\(file)' applies\n"
        #expect(ending.error.hasSuffix(hint), "\(ending)")
    }

    /// Only the mode of a file that is in effect decides whether it can be used.
    @Test(
        arguments: [
            (0o644, nil), (0o664, "mode 0664: root refuses"),
            (0o600, "mode 0600: other users cannot read it"),
        ] as [(mode_t, String?)]
    )
    func aModeWithWhichARegistrationCannotBeInstalledIsAWarning(
        mode: mode_t,
        warning: String?
    ) async throws {
        let path = installed.world.directory.path.appending("net.example.wallpaper.json").string
        try installed.world.directory.write(
            installed.registration.json(),
            to: "net.example.wallpaper.json",
            durably: false
        )
        unsafe #expect(chmod(path, mode) == 0)
        let ending = try await installed.run("app", "validate", path)
        #expect(ending.status == 0 && ending.output == "", "\(ending)")
        guard let warning else {
            #expect(ending.error == "")
            return
        }
        #expect(ending.error.hasPrefix("stagepack: warning: \(path): \(warning)"), "\(ending)")
        #expect(ending.error.hasSuffix(": install it with mode 0644\n"), "\(ending)")
        let json = try await installed.run("app", "validate", path, "--json")
        #expect(json.status == 0 && json.output.contains(warning), "\(json)")
    }

    @Test(.root("only root has registrations of the system"))
    func aRegistrationThatUsersCannotReadIsNamed() async throws {
        var installed = installed
        try installed.world.publish(try .small(.aurora))
        unsafe #expect(chmod(file, 0o600) == 0)
        let command = "run 'chmod a+r \(name)'"
        let hook = try await installed.run("prefetch", "--all", "--hook")
        #expect(hook.output.contains("users cannot read its registration: \(command)"), "\(hook)")
        #expect(hook.output.contains("1 staged"), "\(hook)")
        let doctor = try await installed.run("doctor")
        #expect(doctor.status == 3 && doctor.output.contains("as root, \(command)"), "\(doctor)")
        unsafe #expect(chmod(file, 0o644) == 0)
        let again = try await installed.run("prefetch", "--all", "--hook")
        #expect(!again.output.contains("users cannot read"), "\(again)")
    }

    @Test func aFindingNamesItsFileOnce() async throws {
        let path = try write("registrationVersion", as: "x", to: "net.example.wallpaper.json")
        let ending = try await installed.run("app", "validate", path)
        #expect(ending.status == 3)
        let parts = ending.output.split(separator: path, omittingEmptySubsequences: false)
        #expect(parts.count == 2, "\(ending)")
    }

    @Test(arguments: ["nowhere.json", "."])
    func aFileThatDoesNotExistIsAFaultOfTheCommandLine(name: String) async throws {
        let missing = installed.world.directory.path.appending(name).string
        let present = try write("registrationVersion", as: "x", to: "net.example.wallpaper.json")
        let ending = try await installed.run("app", "validate", present, missing)
        #expect(ending.status == 64 && ending.output == "", "\(ending)")
        #expect(ending.error.hasPrefix("stagepack: error: cannot open '"), "\(ending)")
        #expect(ending.error.hasSuffix("hint: pass the path of the registration\n"), "\(ending)")
    }

    @Test func aRegistrationThatValidateRefusesIsNotInstalled() async throws {
        var installed = installed
        try installed.uninstall()
        installed.registration.downloaderExtension = Registration.Program(
            path: "/nowhere/extension",
            arguments: []
        )
        try installed.world.directory.write(
            installed.registration.json(),
            to: "net.example.wallpaper.json",
            durably: false
        )
        let path = installed.world.directory.path.appending("net.example.wallpaper.json").string
        let ending = try await installed.run("app", "register", path)
        #expect(ending.status == 11, "\(ending)")
        #expect(ending.error.contains("'/nowhere/extension' cannot be executed here"), "\(ending)")
        let words = try await HintedCommand.words(in: ending.error)
        #expect(words == ["app", "validate", path])
        #expect(try await installed.run("app", "list").output == "")
    }

    /// Unknown members are ignored, and those that resemble a known one are probably mistakes.
    @Test(arguments: [
        ("version", "versoin", 3 as Int32), ("trust", "trst", 3), ("x", "x", 0),
    ])
    func aMemberThatIsMisspeltIsAskedFor(
        member: String,
        other: String,
        status: Int32
    ) async throws {
        let path = try write(member, as: other, to: "net.example.wallpaper.json")
        let ending = try await installed.run("app", "validate", path)
        #expect(ending.status == status, "\(ending)")
        let question = "\(other): it is ignored, as an unknown member: did you mean '\(member)'?"
        #expect(ending.error.contains(question) == (status != 0), "\(ending)")
        let json = try await installed.run("app", "validate", path, "--json")
        #expect(json.status == status && json.error == "")
        #expect(json.output.contains(#""severity" : "warning""#) == (status != 0), "\(json)")
        #expect(json.output.contains(question) == (status != 0), "\(json)")
    }

    /// The status says only whether the registration can be used.
    @Test(arguments: ["validate", "register"])
    func aMisspeltMemberThatIsOptionalIsAWarning(command: String) async throws {
        var installed = installed
        try installed.uninstall()
        installed.registration.restrictions = Registration.Restrictions()
        installed.registration.restrictions?.downloadAllowance = .mebibytes(1)
        let text = String(decoding: installed.registration.json(), as: UTF8.self)
            .replacing("\"downloadAllowance\"", with: "\"downloadAllowence\"")
        try installed.world.directory.write(
            Array(text.utf8),
            to: "net.example.wallpaper.json",
            durably: false
        )
        let path = installed.world.directory.path.appending("net.example.wallpaper.json").string
        let ending = try await installed.run("app", command, path)
        #expect(ending.status == 0, "\(ending)")
        let warning = """
            stagepack: warning: \(path): restrictions.downloadAllowence: it is ignored, as an unknown member: did you \
            mean 'downloadAllowance'?

            """
        #expect(ending.error == warning)
    }

    /// Without an option, the hint is the same command with the only application.
    @Test(arguments: ["prefetch", "fetch aurora", "pin aurora", "rollback aurora", "remove aurora"])
    func theOnlyApplicationIsProposed(command: String) async throws {
        var installed = installed
        try installed.world.publish(try .small(.aurora))
        let words = command.split(separator: " ").map(String.init)
        let ending = try await installed.world.program.run(words)
        #expect(ending.status == 64, "\(ending)")
        let hint = "\nhint: run 'stagepack \(command) --app net.example.wallpaper'\n"
        #expect(ending.error.hasSuffix(hint), "\(ending)")
        let other = String(decoding: installed.registration.json(), as: UTF8.self)
            .replacing("net.example.wallpaper", with: "net.example.other")
        try installed.write(Array(other.utf8), to: "net.example.other.json")
        let several = try await installed.world.program.run(words)
        #expect(several.status == 64, "\(several)")
        #expect(!several.error.contains("--app net.example"), "\(several)")
    }

    /// The hint depends on the system's reason.
    @Test(
        .mountedFileSystems,
        arguments: [
            ("ro", 41, "make the file system writable"),
            (
                "nr_inodes=1", 40,
                "delete files ('df -i' counts them) or use a file system with more inodes"
            ),
        ] as [(String, Int32, String)]
    )
    func aFolderThatCannotBeWrittenIsNamed(
        options: String,
        status: Int32,
        hint: String
    ) async throws {
        var program = installed.world.program
        let mount = "mount -t tmpfs -o \(options) none /etc/stagepack && exec \"$@\""
        program.wrapper =
            program.wrapper.dropLast() + ["/bin/sh", "-c", mount, "sh", try Program.path.string]
        try installed.world.directory.write(
            installed.registration.json(),
            to: "net.example.wallpaper.json",
            durably: false
        )
        let path = installed.world.directory.path.appending("net.example.wallpaper.json").string
        let ending = try await program.run(["app", "register", path])
        #expect(ending.status == status, "\(ending)")
        #expect(ending.error.hasSuffix("hint: \(hint)\n"), "\(ending)")
    }

    @Test func aMisspeltApplicationIsAskedForWhenItIsUnregistered() async throws {
        let ending = try await installed.run("app", "unregister", "net.example.wallpapr")
        #expect(ending.status == 11)
        #expect(ending.error.contains("did you mean 'net.example.wallpaper'?"), "\(ending)")
    }
}
