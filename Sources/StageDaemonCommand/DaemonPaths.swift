import StageControl

/// Default paths of a daemon's files.
struct DaemonPaths {
    /// State directory.
    var state: String
    /// Control socket.
    var socket: String
    /// Configuration file.
    var configuration: String

    /// Returns the paths of the system's daemon, or of a user's own (XDG Base Directory Specification).
    init(environment: [String: String], isSystem: Bool) {
        guard !isSystem else {
            state = "/var/lib/stagepack/transfers"
            socket = ControlSocket.system
            configuration = "/etc/stagepack/stagepackd.json"
            return
        }
        func folder(_ name: String, default fallback: String) -> String {
            if let path = environment[name], path.hasPrefix("/") { return path }
            return "\(environment["HOME"] ?? "/")/\(fallback)"
        }
        state = "\(folder("XDG_STATE_HOME", default: ".local/state"))/stagepack/transfers"
        configuration = "\(folder("XDG_CONFIG_HOME", default: ".config"))/stagepack/stagepackd.json"
        let runtime = ControlSocket.runtimeDirectory(environment: environment)
        socket = ControlSocket.user(
            runtimeDirectory: runtime ?? "/.local/state/stagepack"
        )
    }
}
