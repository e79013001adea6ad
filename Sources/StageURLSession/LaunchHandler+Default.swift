import Foundation
import Glibc
import Logging
import StageContainer
import StageControl
import StageModel
import StageSystem
import Synchronization
import SystemPackage

extension LaunchHandler {
    /// Prefix of the version of default handlers, which no configuration names.
    private static let defaultPrefix = "default "
    /// `true` after the warning that this process's executable is not launched.
    private static let hasWarned = Mutex(false)

    /// `true` if a process created the handler because its session's configuration names none.
    var isDefault: Bool { version?.hasPrefix(Self.defaultPrefix) ?? false }

    /// Creates the handler of a session whose configuration names none.
    ///
    /// The `backgroundEventsHandler` of a registration takes precedence over the executable. The registration is that
    /// of the application whose identifier is the main bundle's, or whose handler is this executable, or of the only
    /// application of the group that the configuration names. The result is `nil` if neither program can be started
    /// later: the executable runs tests, or it was removed or another user could replace it, which is logged once.
    ///
    /// - Parameters:
    ///   - group: The application group of the configuration; `nil` for none.
    ///   - application: The identifier of the main bundle; `nil` for none.
    ///   - executable: The executable of this process.
    ///   - environment: The environment that names the folders of the registrations.
    init?(
        group: String?,
        application: String?,
        executable: FilePath?,
        environment: [String: String]
    ) {
        let folders = RegistrationLocations.folders(environment: environment)
        // Unreadable registrations are ignored here; 'stagepack app list' reports them.
        let registrations = ((try? RegistrationLocations.applications(in: folders)) ?? [])
            .compactMap { RegistrationLocations.files(of: $0, in: folders).last }
            .compactMap { try? Registration(file: $0) }
            .filter { $0.backgroundEventsHandler != nil }
        let ofGroup = registrations.filter { $0.group.text == group }
        let registration =
            registrations.first { $0.application.text == application }
            ?? registrations.first { $0.backgroundEventsHandler?.path == executable?.string }
            ?? (ofGroup.count == 1 ? ofGroup.first : nil)
        if let program = registration?.backgroundEventsHandler {
            self.init(command: [program.path] + program.arguments)
        } else {
            guard let executable, !Self.runsTests(executable) else { return nil }
            if let reason = Self.risk(of: executable) {
                Self.warn(of: reason, for: executable)
                return nil
            }
            self.init(command: [executable.string])
        }
        version = Self.defaultPrefix + Self.identity(of: command[0])
    }

    /// Returns text that differs between versions of a program: its inode, size and modification time.
    private static func identity(of program: String) -> String {
        // A program without a status has no version.
        let values = try? FileManager.default.attributesOfItem(atPath: program)
        let inode = (values?[.systemFileNumber] as? NSNumber)?.uint64Value ?? 0
        let size = (values?[.size] as? NSNumber)?.uint64Value ?? 0
        let changed = (values?[.modificationDate] as? Date)?.timeIntervalSince1970 ?? 0
        return "\(inode):\(size):\(Int64(changed))"
    }

    /// Returns the reason why the program at a path may be another one when the daemon starts it, after this process has
    /// ended; `nil` if only root and this user can replace it.
    ///
    /// Write permission of a group is a reason even if the group has the user's name: its members cannot be determined, since
    /// getgrnam(3) omits users whose primary group it is, and its bits may be the mask of an access control list (acl(5)).
    private static func risk(of path: FilePath) -> String? {
        var current = path
        repeat {
            guard let status = FileStatus(following: current) else {
                return "'\(current)' does not exist"
            }
            if let reason = status.foreignWriter { return "'\(current)': \(reason)" }
        } while current.removeLastComponent()
        return nil
    }

    /// Logs once that the daemon will not launch the executable of this process.
    private static func warn(of reason: String, for executable: FilePath) {
        let isFirst = hasWarned.withLock { hasWarned in
            defer { hasWarned = true }
            return !hasWarned
        }
        guard isFirst else { return }
        // The handler that the application has set, or else standard error.
        Logger(label: "stage-session")
            .warning(
                "The daemon will not launch this program for the events of background sessions",
                metadata: ["program.path": "\(executable)", "program.risk": "\(reason)"]
            )
    }

    /// Returns whether a program would run tests, not an application, if it were started without arguments.
    private static func runsTests(_ executable: FilePath) -> Bool {
        executable.extension == "xctest"
            || ["xctest", "swiftpm-testing-helper"].contains(executable.lastComponent?.string)
    }

    /// Returns the handler with the home directory and the folders of an environment, except those that the handler sets.
    ///
    /// The home directory may be another one than the account's, and a user number may have no account.
    func withFolders(of environment: [String: String]) -> LaunchHandler {
        let names = [
            "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
        ]
        let folders = environment.filter { names.contains($0.key) && $0.value.hasPrefix("/") }
        guard !folders.isEmpty else { return self }
        var handler = self
        handler.environment = folders.merging(handler.environment ?? [:]) { $1 }
        return handler
    }
}
