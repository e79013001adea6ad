import StageControl
import StageSystem
import SystemPackage

/// The ways to start a daemon at one of the sockets where a command has found none.
struct DaemonStart {
    /// The sockets.
    let sockets: [String]
    /// The environment of the user.
    let environment: [String: String]

    /// The advice, as a fragment: names commands of systemd only where it runs and has the units.
    var hint: String {
        let isForMachine = sockets.contains(ControlSocket.system)
        if UserIdentity.current.user == 0, isForMachine {
            let service = hasSystemUnit ? ["systemctl start stagepackd"] : []
            return "start it: \(Self.list(service + ["stagepackd"]))"
        }
        let own = commandsForUser
        guard isForMachine, hasSystemUnit else {
            return own.isEmpty
                ? "as root, start it: 'stagepackd'" : "start it: \(Self.list(own))"
        }
        let command = "as root, run 'systemctl enable --now \(Self.unit)'"
        return own.isEmpty ? command : "\(command), or start one for this user: \(Self.list(own))"
    }

    private static let unit: FilePath.Component = "stagepackd.socket"

    /// The commands with which the user starts a daemon at one of the sockets.
    private var commandsForUser: [String] {
        let directory = ControlSocket.runtimeDirectory(environment: environment)
        if let directory, sockets.contains(ControlSocket.user(runtimeDirectory: directory)) {
            let service = hasUserUnit(directory) ? ["systemctl --user start stagepackd"] : []
            return service + ["stagepackd"]
        }
        let others = sockets.filter { $0 != ControlSocket.system }
        return others.map { "stagepackd --socket \(CommandFailure.quoted($0))" }
    }

    /// True if systemd runs and has the daemon's unit.
    private var hasSystemUnit: Bool {
        FileStatus.exists("/run/systemd/system")
            && Self.folders("system").contains(where: Self.hasUnit)
    }

    /// True if a service manager of the user runs and has the daemon's unit.
    private func hasUserUnit(_ runtimeDirectory: String) -> Bool {
        guard FileStatus.exists(FilePath(runtimeDirectory).appending("systemd")) else {
            return false
        }
        let home = environment["HOME"].map { [FilePath($0).appending(".config/systemd/user")] }
        return (Self.folders("user") + (home ?? [])).contains(where: Self.hasUnit)
    }

    private static func hasUnit(_ folder: FilePath) -> Bool {
        FileStatus.exists(folder.appending(unit))
    }

    /// Returns the folders of the units of a service manager (systemd.unit(5)).
    private static func folders(_ manager: String) -> [FilePath] {
        ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"].map { parent in
            FilePath("\(parent)/systemd/\(manager)")
        }
    }

    private static func list(_ commands: [String]) -> String {
        commands.map(HintSource.enclosed).joined(separator: ", or ")
    }
}
