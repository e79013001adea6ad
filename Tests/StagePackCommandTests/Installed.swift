import Glibc
import StageContainer
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A registered application on an otherwise empty machine.
///
/// As root, which ignores paths in its environment, the program sees a `/var/lib`, an `/etc` and a `/run` of the test, in
/// a mount namespace. Otherwise it uses a container and registrations of the user, which the environment
/// names.
struct Installed {
    var world: World
    /// The registration that the application's package installs.
    var registration: Registration

    /// Installs the application's registration.
    init() async throws {
        world = try World()
        registration = Registration(
            application: try ApplicationID("net.example.wallpaper"),
            version: "1.0",
            group: try ApplicationGroupID("net.example"),
            manifestURLs: [world.manifestURL],
            trust: .transport
        )
        if geteuid() == 0 {
            world.program.wrapper = try Self.machine(in: world.directory)
        } else {
            let home = world.directory.path
            world.program.environment = [
                "XDG_CONFIG_HOME": home.appending("config").string,
                "XDG_DATA_HOME": home.appending("data").string,
            ]
        }
        try install()
    }

    /// Creates the directories of an empty machine, and returns the command that starts `stagepack`
    /// there.
    ///
    /// The entries of the machine's `/etc` are there, too, as links.
    private static func machine(in directory: Directory) throws -> [String] {
        for name in ["var-lib", "etc", "run", "outer-etc"] {
            _ = try directory.makeDirectory(FilePath(name))
        }
        let etc = try directory.makeDirectory("etc")
        let outer = directory.path.appending("outer-etc")
        for entry in try Directory.open("/etc").entries() where entry.path != "stagepack" {
            try etc.createLink(entry.path, to: "\(outer)/\(entry.path)")
        }
        let script = """
            mount --bind /etc "$1/outer-etc" && mount --bind "$1/etc" /etc \
                && mount --bind "$1/run" /run && mount --bind "$1/var-lib" /var/lib || exit 99
            shift
            exec "$@"
            """
        return [
            "/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh", directory.path.string,
            try Program.path.string,
        ]
    }

    /// The socket at which the program looks for a daemon.
    var socket: FilePath {
        let name: FilePath = geteuid() == 0 ? "run/stagepack/control.sock" : "control.sock"
        return world.directory.path.appending(name.components)
    }

    /// The path of ``socket`` as the program sees it.
    var socketName: String {
        geteuid() == 0 ? ControlSocket.system : socket.string
    }

    /// Makes the program use the daemon at ``socket``, which it otherwise does not in tests.
    mutating func allowDaemon() {
        world.program.environment["STAGEPACK_SOCKET"] = geteuid() == 0 ? nil : socket.string
        world.program.asksDaemon = true
    }

    /// Starts a simulated daemon at ``socket``, which the program may use; the caller stops it.
    mutating func startTestDaemon() throws -> TestDaemon {
        allowDaemon()
        _ = try Directory.make(socket.removingLastComponent())
        let daemon = TestDaemon(path: socket.string)
        try daemon.start()
        return daemon
    }

    /// Writes the registration into the folder of packages.
    func install() throws {
        try write(registration.json(), to: "\(registration.application).json")
    }

    /// Puts a file into the folder of registrations.
    func write(_ content: [UInt8], to name: String) throws {
        let component = try #require(FilePath.Component(name))
        try Directory.make(folder).write(content, to: component, durably: false)
    }

    /// Registers another application of the group, and serves its manifest and its packs.
    ///
    /// A hook processes applications of equal urgency in the order of their names.
    func addOther(_ name: String = "net.example.zoo", offering packs: [SamplePack] = []) throws {
        var other = registration
        other.application = try ApplicationID(name)
        other.manifestURLs = [world.server.url("/\(name).json")]
        let manifest = Manifest(
            application: other.application,
            revision: 1,
            packs: packs.map(\.pack)
        )
        world.server.answer("/\(name).json", with: .content(manifest.json()))
        for pack in packs { world.server.answer(pack.path, with: .content(pack.archive)) }
        try write(other.json(), to: "\(name).json")
    }

    /// Removes the registration, as the package's removal does.
    func uninstall() throws {
        let name = try #require(FilePath.Component("\(registration.application).json"))
        try Directory.open(folder).remove(name)
    }

    /// The folder of registrations.
    var folder: FilePath {
        world.directory.path.appending(geteuid() == 0 ? "etc" : "config")
            .appending("stagepack/apps.d")
    }

    /// The container of the application's group.
    var container: FilePath {
        world.directory.path.appending(geteuid() == 0 ? "var-lib" : "data")
            .appending("stagepack/groups/net.example")
    }

    /// The versions that are staged, by pack.
    func staged() throws -> [String: Int] {
        guard let reader = try ContainerReader.open(container) else { return [:] }
        var versions: [String: Int] = [:]
        for id in try reader.stagedPacks() {
            versions[id.text] = try reader.record(of: id)?.version
        }
        return versions
    }

    /// Returns the staging history of the application.
    func history() throws -> StagingHistory? {
        try ContainerReader.open(container)?.history(of: registration.application)
    }

    /// Runs the program.
    func run(_ arguments: String...) async throws -> Program.Ending {
        try await world.program.run(arguments)
    }
}

extension Installed {
    /// Registers an application whose container has an unknown format, and comes before the other.
    func addUnusableApplication() throws {
        let groups = container.removingLastComponent()
        let unusable = try Directory.make(groups.appending("a.broken"))
        let record = Array(#"{"formatVersion":9}"#.utf8)
        try unusable.write(record, to: "container.json", durably: false)
        var other = registration
        other.application = try ApplicationID("a.broken.game")
        other.group = try ApplicationGroupID("a.broken")
        try write(other.json(), to: "a.broken.game.json")
    }

    /// Replaces the link of a pack by a directory, as a copy does that follows links (`cp -L`).
    func followLink(of pack: FilePath.Component) throws {
        let packs = try Directory.open(container.appending("packs"))
        try packs.remove(pack)
        let copy = try packs.makeDirectory(FilePath(pack))
        try copy.write([1], to: "copied.txt", durably: false)
    }

    /// Writes an extension in Python, and installs a registration that names it.
    mutating func extend(with text: String) throws {
        let folder = try world.directory.makeDirectory("program")
        let path = folder.path.appending("choose")
        let script = """
            #!/usr/bin/python3
            import json, os, sys, time
            message = json.load(sys.stdin)
            answer = {"protocol": 1}
            \(text)
            json.dump(answer, sys.stdout)
            """
        try ProgramFile.write(script, to: path)
        registration.downloaderExtension = .init(path: path.string)
        try install()
    }

    /// Runs the program on an old kernel, as the user that runs the tests.
    mutating func move(to kernel: OldKernel) throws {
        let program = try Program.path.string
        var wrapper = world.program.wrapper.dropLast()
        wrapper += try kernel.wrapper(in: world.directory) + [program]
        world.program.wrapper = Array(wrapper)
    }
}
