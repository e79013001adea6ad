import StageControl

/// Where a daemon has its files, unless it is told otherwise.
struct DaemonPaths {
    /// The directory with what it must not forget.
    var state: String
    /// Where clients connect.
    var socket: String
    /// The configuration file.
    var configuration: String

    /// The paths of the system's daemon, or of a user's own (XDG Base Directory Specification).
    init(environment: [String: String], isSystem: Bool) {
        guard !isSystem else {
            state = "/var/lib/stagepack/transfers"
            socket = ControlSocket.system
            configuration = "/etc/stagepack/stagepackd.json"
            return
        }
        func folder(_ name: String, _ fallback: String) -> String {
            if let path = environment[name], path.hasPrefix("/") { return path }
            return "\(environment["HOME"] ?? "/")/\(fallback)"
        }
        state = "\(folder("XDG_STATE_HOME", ".local/state"))/stagepack/transfers"
        configuration = "\(folder("XDG_CONFIG_HOME", ".config"))/stagepack/stagepackd.json"
        socket = ControlSocket.user(
            runtimeDirectory: folder("XDG_RUNTIME_DIR", ".local/state/stagepack")
        )
    }
}
