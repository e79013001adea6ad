import StageSystem
package import SystemPackage

/// Paths of the daemon's socket.
package enum ControlSocket {
    /// Socket of the system's daemon.
    package static let system = "/run/stagepack/control.sock"

    /// Returns the socket of a user's own daemon below the user's runtime directory.
    package static func user(runtimeDirectory: String) -> String {
        "\(runtimeDirectory)/stagepack/control.sock"
    }

    /// Returns the runtime directory of the user of this process: `XDG_RUNTIME_DIR`, or `/run/user/UID` where that is there and
    /// the user's, as in a cron job or after `su`, or a directory in the user's home; `nil` for root, who has the system's
    /// daemon.
    ///
    /// A user's daemon and its clients both ask this, so that they find each other.
    package static func runtimeDirectory(environment: [String: String]) -> String? {
        runtimeDirectory(environment: environment, of: UserIdentity.current.user, in: "/run/user")
    }

    /// Returns the runtime directory of a user where those of all users are in `folder`.
    package static func runtimeDirectory(
        environment: [String: String],
        of user: UInt32,
        in folder: FilePath
    ) -> String? {
        if let path = environment["XDG_RUNTIME_DIR"], path.hasPrefix("/") { return path }
        guard user != 0 else { return nil }
        // A folder that cannot be opened has no directory of this user.
        let status = try? Directory.open(folder).status(FilePath("\(user)"))
        if let status, status.kind == .directory, status.owner == user {
            return folder.appending("\(user)").string
        }
        if let path = environment["XDG_STATE_HOME"], path.hasPrefix("/") {
            return "\(path)/stagepack"
        }
        return environment["HOME"].map { "\($0)/.local/state/stagepack" }
    }

    /// Returns the sockets to try, in order: only the one that `STAGEPACK_SOCKET` names, or else the user's and then
    /// the system's.
    package static func candidates(environment: [String: String]) -> [String] {
        if let path = environment["STAGEPACK_SOCKET"] { return path.isEmpty ? [] : [path] }
        let user = runtimeDirectory(environment: environment)
        return (user.map { [Self.user(runtimeDirectory: $0)] } ?? []) + [system]
    }
}
