public import StageModel
import StageSystem
public import SystemPackage

/// Where the containers of application groups are.
public enum ContainerLocations {
    /// The directory with the containers of the whole system.
    public static let systemGroups: FilePath = "/var/lib/stagepack/groups"

    /// The container of a group for the whole system.
    public static func system(_ group: ApplicationGroupID) -> FilePath {
        systemGroups.appending(group.text)
    }

    /// The directory with the containers of one user: below `$XDG_DATA_HOME`, else `~/.local/share`.
    ///
    /// Returns `nil` if the environment names neither (XDG Base Directory Specification).
    public static func userGroups(environment: [String: String]) -> FilePath? {
        let base: FilePath? =
            if let path = environment["XDG_DATA_HOME"], path.hasPrefix("/") {
                FilePath(path)
            } else if let home = environment["HOME"], home.hasPrefix("/") {
                FilePath(home).appending(".local/share")
            } else {
                nil
            }
        return base?.appending("stagepack/groups")
    }

    /// The container of a group for one user, or `nil` if the environment does not say where it is.
    public static func user(_ group: ApplicationGroupID, environment: [String: String]) -> FilePath?
    {
        userGroups(environment: environment)?.appending(group.text)
    }

    /// The containers that a reader looks in, in this order: the user's, then the system's.
    ///
    /// Without an environment it is that of this process; a privileged one has the system's only.
    public static func forReading(
        _ group: ApplicationGroupID,
        environment: [String: String]? = nil
    ) -> [FilePath] {
        let environment = environment ?? ProcessEnvironment.current
        return [user(group, environment: environment), system(group)].compactMap { $0 }
    }
}
