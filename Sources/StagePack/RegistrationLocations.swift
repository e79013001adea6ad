import StageSystem
public import SystemPackage

/// Where the registrations of applications are.
public enum RegistrationLocations {
    /// The folders that applications install their registrations into; a later one overrides.
    ///
    /// Those of the system, then of the user whose environment this is. Without an environment they are
    /// those of this process: a privileged one has the system's only, since what hooks and timers do
    /// must not depend on the user who started them.
    public static func folders(environment: [String: String]? = nil) -> [FilePath] {
        let environment = environment ?? ProcessEnvironment.current
        var folders: [FilePath] = ["/usr/share/stagepack/apps.d", "/etc/stagepack/apps.d"]
        if let path = environment["XDG_CONFIG_HOME"], path.hasPrefix("/") {
            folders.append(FilePath(path).appending("stagepack/apps.d"))
        } else if let home = environment["HOME"], home.hasPrefix("/") {
            folders.append(FilePath(home).appending(".config/stagepack/apps.d"))
        }
        return folders
    }
}
