public import StageModel
import StageSystem
public import SystemPackage

/// Owners of a container that readers use.
@nonexhaustive
public enum ContainerLocation: String, Hashable, Sendable, Codable, CaseIterable {
    /// One user: the container is in the user's data directory.
    case user
    /// The system: the container is in ``ContainerLocations/systemGroups``.
    case system
}

/// Locations of the containers of application groups.
public enum ContainerLocations {
    /// The directory of the system's containers.
    public static let systemGroups: FilePath = "/var/lib/stagepack/groups"

    /// Returns the path of a group's container for the system.
    public static func system(_ group: ApplicationGroupID) -> FilePath {
        systemGroups.appending(group.text)
    }

    /// Returns the directory of one user's containers: in `$XDG_DATA_HOME`, or else in `~/.local/share` (XDG
    /// Base Directory Specification).
    ///
    /// Returns `nil` if the environment has neither `XDG_DATA_HOME` nor `HOME`; a relative path counts as none.
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

    /// Returns the path of a group's container for one user, or `nil` if the environment does not determine
    /// it.
    public static func user(_ group: ApplicationGroupID, environment: [String: String]) -> FilePath?
    {
        userGroups(environment: environment)?.appending(group.text)
    }

    /// Returns the containers that a reader uses, in order: the user's, then the system's.
    ///
    /// If both have a pack, readers use the newest acceptable version: a pinned copy before others, then the
    /// highest version, then the user's copy.
    ///
    /// The default environment is that of this process; a privileged process uses the system's container only. So does one
    /// whose environment determines no container of the user: a store then fetches into the system's, which requires root.
    public static func forReading(
        _ group: ApplicationGroupID,
        environment: [String: String]? = nil
    ) -> [FilePath] {
        let environment = environment ?? ProcessEnvironment.current
        return [user(group, environment: environment), system(group)].compactMap { $0 }
    }

    /// Returns the owner of the container that a path is in; `nil` for a container at another path.
    ///
    /// The default environment is that of this process.
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
