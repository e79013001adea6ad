/// Where the daemon listens.
public enum ControlSocket {
    /// The socket of the system's daemon.
    public static let system = "/run/stagepack/control.sock"

    /// The socket of a user's own daemon, below what `XDG_RUNTIME_DIR` names.
    public static func user(runtimeDirectory: String) -> String {
        "\(runtimeDirectory)/stagepack/control.sock"
    }

    /// The sockets to try, in order, given the environment: what `STAGEPACK_SOCKET` names and nothing
    /// else, or the user's and then the system's.
    public static func candidates(environment: [String: String]) -> [String] {
        if let path = environment["STAGEPACK_SOCKET"] { return path.isEmpty ? [] : [path] }
        let user = environment["XDG_RUNTIME_DIR"].flatMap { $0.hasPrefix("/") ? $0 : nil }
        return (user.map { [Self.user(runtimeDirectory: $0)] } ?? []) + [system]
    }
}
