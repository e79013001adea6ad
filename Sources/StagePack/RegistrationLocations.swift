public import SystemPackage

/// Where the registrations of applications are.
public enum RegistrationLocations {
    /// The folders that applications install their registrations into; a later one overrides.
    ///
    /// Those of the system and, except for root, of the user whose environment this is. Root's home folder
    /// is left out: what hooks and timers do must not depend on who started them.
    public static func folders(environment: [String: String], isRoot: Bool) -> [FilePath] {
        var folders: [FilePath] = ["/usr/share/stagepack/apps.d", "/etc/stagepack/apps.d"]
        if let path = environment["XDG_CONFIG_HOME"], path.hasPrefix("/") {
            folders.append(FilePath(path).appending("stagepack/apps.d"))
        } else if !isRoot, let home = environment["HOME"], home.hasPrefix("/") {
            folders.append(FilePath(home).appending(".config/stagepack/apps.d"))
        }
        return folders
    }
}
