import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A machine with an application that is registered for all users, with root and an unprivileged user.
///
/// Needs root: both users see the `/var/lib`, `/etc` and `/run` of the test, and the user's home is
/// below `/run`.
struct SharedMachine {
    /// The application.
    var installed: Installed
    private var user: Program

    /// The user's container, as the user's programs print it.
    static let userContainer: FilePath = "/run/home/.local/share/stagepack/groups/net.example"
    /// The system's container, as programs print it.
    static let systemContainer: FilePath = "/var/lib/stagepack/groups/net.example"

    /// Sets the machine up.
    init() async throws {
        installed = try await Installed()
        let run = installed.world.directory.path.appending("run")
        _ = try Directory.open(run).makeDirectory("home")
        try await Self.shell("/bin/chown 65534:65534 \(run.appending("home"))")
        let script = """
            : >> /run/stagepack; mount --bind "$1" /run/stagepack || exit 99
            shift
            exec \(Stranger.command.joined(separator: " ")) /run/stagepack "$@"
            """
        var program = installed.world.program
        program.wrapper =
            program.wrapper.dropLast()
            + ["/bin/sh", "-c", script, "sh", try Program.path.string]
        program.environment["HOME"] = "/run/home"
        user = program
    }

    private static func shell(_ command: String) async throws {
        let shell = Program(wrapper: ["/bin/sh", "-c", command])
        try #require(try await shell.run([]).status == 0)
    }

    /// Serves a version of `aurora`.
    mutating func publish(version: Int) throws {
        try installed.world.publish(try .small(.aurora, version: version))
    }

    /// The environment of the user's programs.
    var userEnvironment: [String: String] {
        get { user.environment }
        set { user.environment = newValue }
    }

    /// Runs a command as root.
    func root(_ arguments: String...) async throws -> Program.Ending {
        try await installed.world.program.run(arguments + Self.application)
    }

    /// Runs a command as the user.
    func user(_ arguments: String...) async throws -> Program.Ending {
        try await user.run(arguments + Self.application)
    }

    /// Runs a command as root, without an application.
    func rootForAll(_ arguments: [String]) async throws -> Program.Ending {
        try await installed.world.program.run(arguments)
    }

    /// Runs a command as the user, without an application.
    func userForAll(_ arguments: [String]) async throws -> Program.Ending {
        try await user.run(arguments)
    }

    private static let application = ["--app", "net.example.wallpaper"]
}
