import Glibc
import Logging
import StageSystem

/// Control groups that limit the memory and processes of handlers, so that they cannot starve the daemon.
///
/// Divides the control group of the daemon's unit: `daemon` contains the daemon, `handlers/UID/SESSION` a handler and
/// its child processes. All handlers together get half of the unit's limits, those of one user an eighth.
struct HandlerGroups: Sendable {
    private let all: ControlGroup
    private let limitsOfUser: ControlGroup.Limits
    private let logger: Logger

    /// Divides this process's control group, and moves the process into the group `daemon`.
    ///
    /// Returns `nil` if the service manager delegated no group or the kernel refuses. Handlers then share the
    /// daemon's limits.
    static func prepare(logger: Logger) -> HandlerGroups? {
        do {
            guard let unit = try ControlGroup.delegated() else {
                logger.info(
                    "Handlers share the limits of the daemon: it has no control group to divide"
                )
                return nil
            }
            let limits = try unit.limits()
            // Only a group without processes of its own can limit its children (cgroups(7)).
            try unit.makeGroup("daemon").enter()
            try unit.allowLimits()
            let all = try unit.makeGroup("handlers")
            // Ends handlers that a killed daemon left running.
            try? all.kill()
            try all.set(limits.divided(by: 2))
            try all.allowLimits()
            return HandlerGroups(all: all, limitsOfUser: limits.divided(by: 8), logger: logger)
        } catch {
            logger.warning(
                "Handlers share the limits of the daemon: its control group cannot be divided",
                metadata: ["error": "\(error)"]
            )
            return nil
        }
    }

    /// Creates the group of a handler or worker that is about to start.
    func makeGroup(_ name: String, of user: UInt32) throws(FileError) -> ControlGroup {
        let user = try all.makeGroup("\(user)")
        try user.set(limitsOfUser)
        return try user.makeGroup(name)
    }

    /// Kills the processes that a handler left behind, and removes its group.
    ///
    /// The group of the user stays.
    func end(_ name: String, of user: UInt32) {
        do throws(FileError) {
            let user = try all.makeGroup("\(user)")
            // Fails before Linux 5.14, where only the handler's process group was killed.
            try? user.makeGroup(name).kill()
            // Killed processes take a moment to disappear. A group that cannot be removed is reused.
            for _ in 0..<50 {
                if try user.removeGroup(name) { break }
                usleep(20_000)
            }
        } catch {
            logger.warning("The control group of a handler stays", metadata: error.metadata)
        }
    }
}
