import Glibc
import StageContainer
import StageModel
import StageSystem
import SystemPackage
import Testing

/// An application that is registered, on a machine with nothing else.
///
/// Run by root, the program sees a `/var/lib` of the test's own, in a mount namespace; else it works on
/// a user's container. Its registrations are in `$XDG_CONFIG_HOME` either way.
struct Installed {
    var world: World
    /// What the application's package installs.
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
        let home = world.directory.path
        world.program.environment = [
            "XDG_CONFIG_HOME": home.appending("config").string,
            "XDG_DATA_HOME": home.appending("data").string,
        ]
        if geteuid() == 0 {
            let library = try world.directory.makeDirectory("var-lib").path
            let script = #"mount --bind "$1" /var/lib || exit 99; shift; exec "$@""#
            world.program.wrapper = [
                "/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh", library.string,
                try Program.path.string,
            ]
        }
        try install()
    }

    /// Puts the registration where the package puts it.
    func install() throws {
        try write(registration.json(), to: "\(registration.application).json")
    }

    /// Puts a file into the folder of registrations.
    func write(_ content: [UInt8], to name: String) throws {
        let component = try #require(FilePath.Component(name))
        try Directory.make(folder).write(content, to: component, durably: false)
    }

    /// Removes the registration, as the package's removal does.
    func uninstall() throws {
        let name = try #require(FilePath.Component("\(registration.application).json"))
        try Directory.open(folder).remove(name)
    }

    private var folder: FilePath {
        world.directory.path.appending("config/stagepack/apps.d")
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

    /// What is remembered of the application.
    func history() throws -> StagingHistory? {
        try ContainerReader.open(container)?.history(of: registration.application)
    }

    /// Runs the program.
    func run(_ arguments: String...) async throws -> Program.Ending {
        try await world.program.run(arguments)
    }
}
