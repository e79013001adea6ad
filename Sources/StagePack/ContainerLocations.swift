public import StageModel
import StageSystem
public import SystemPackage

/// The owner of a container that readers look in.
public enum ContainerLocation: String, Hashable, Sendable, Codable, CaseIterable {
    /// One user: it is below the user's data directory.
    case user
    /// The whole system: it is below ``ContainerLocations/systemGroups``.
    case system
}

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
    /// Where both have a pack, readers get the newest acceptable version: a pinned copy before others, then the highest
    /// version, then the user's copy.
    ///
    /// Without an environment it is that of this process; a privileged one has the system's only.
    public static func forReading(
        _ group: ApplicationGroupID,
        environment: [String: String]? = nil
    ) -> [FilePath] {
        let environment = environment ?? ProcessEnvironment.current
        return [user(group, environment: environment), system(group)].compactMap { $0 }
    }

    /// Returns whose container a path names, or is below; `nil` for a container in another place.
    ///
    /// Without an environment it is that of this process.
    public static func location(
        of path: FilePath,
        environment: [String: String]? = nil
    ) -> ContainerLocation? {
        if path.starts(with: systemGroups) { return .system }
        let environment = environment ?? ProcessEnvironment.current
        guard let groups = userGroups(environment: environment), path.starts(with: groups) else {
            return nil
        }
        return .user
    }
}
