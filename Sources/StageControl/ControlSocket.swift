/// Paths of the daemon's socket.
public enum ControlSocket {
    /// Socket of the system's daemon.
    public static let system = "/run/stagepack/control.sock"

    /// Returns the socket of a user's own daemon in the directory that `XDG_RUNTIME_DIR` names.
    public static func user(runtimeDirectory: String) -> String {
        "\(runtimeDirectory)/stagepack/control.sock"
    }

    /// Returns the sockets to try, in order: only the one that `STAGEPACK_SOCKET` names, or else the user's and then
    /// the system's.
    public static func candidates(environment: [String: String]) -> [String] {
        if let path = environment["STAGEPACK_SOCKET"] { return path.isEmpty ? [] : [path] }
        let user = environment["XDG_RUNTIME_DIR"].flatMap { $0.hasPrefix("/") ? $0 : nil }
        return (user.map { [Self.user(runtimeDirectory: $0)] } ?? []) + [system]
    }
}
