public import StageModel
public import SystemPackage

/// Where the containers of application groups are.
public enum ContainerLocations {
    /// The container of a group for the whole system.
    public static func system(_ group: ApplicationGroupID) -> FilePath {
        FilePath("/var/lib/stagepack/groups").appending(group.text)
    }

    /// The container of a group for one user: below `$XDG_DATA_HOME`, else `~/.local/share`.
    ///
    /// Returns `nil` if the environment names neither (XDG Base Directory Specification).
    public static func user(_ group: ApplicationGroupID, environment: [String: String]) -> FilePath?
    {
        let base: FilePath? =
            if let path = environment["XDG_DATA_HOME"], path.hasPrefix("/") {
                FilePath(path)
            } else if let home = environment["HOME"], home.hasPrefix("/") {
                FilePath(home).appending(".local/share")
            } else {
                nil
            }
        return base?.appending("stagepack/groups").appending(group.text)
    }

    /// The containers that a reader looks in, in this order: the user's, then the system's.
    public static func forReading(
        _ group: ApplicationGroupID,
        environment: [String: String]
    ) -> [FilePath] {
        [user(group, environment: environment), system(group)].compactMap { $0 }
    }
}
