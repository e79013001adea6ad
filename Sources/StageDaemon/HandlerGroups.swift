import Glibc
import Logging
import StageSystem

/// Control groups that keep handlers from taking the memory and the processes that the daemon needs.
///
/// The group of the daemon's unit is divided: `daemon` has the daemon, `handlers/UID/SESSION` has a
/// handler and what it has started. All handlers together may have half of what the unit may have, and
/// those of one user an eighth.
struct HandlerGroups: Sendable {
    private let all: ControlGroup
    private let limitsOfUser: ControlGroup.Limits
    private let logger: Logger

    /// Divides the group of this process, which moves into one of the parts.
    ///
    /// Returns `nil` where the service manager has left no group to it, or the kernel refuses: handlers
    /// then share the limits of the daemon.
    static func prepare(logger: Logger) -> HandlerGroups? {
        do {
            guard let unit = try ControlGroup.delegated() else {
                logger.info(
                    "Handlers share the limits of the daemon: it has no control group to divide"
                )
                return nil
            }
            let limits = try unit.limits()
            // Groups have limits only below one that has no processes itself.
            try unit.makeGroup("daemon").enter()
            try unit.allowLimits()
            let all = try unit.makeGroup("handlers")
            // Handlers of a daemon that was killed: none runs beside its successor.
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

    /// Returns the group of a handler, or worker, that is about to be started.
    func makeGroup(_ name: String, of user: UInt32) throws(FileError) -> ControlGroup {
        let user = try all.makeGroup("\(user)")
        try user.set(limitsOfUser)
        return try user.makeGroup(name)
    }

    /// Kills what a handler that has ended left behind, and removes its group; that of its user stays, for
    /// other handlers.
    func end(_ name: String, of user: UInt32) {
        do {
            let user = try all.makeGroup("\(user)")
            // Linux before 5.14 cannot; the handler's process group was killed.
            try? user.makeGroup(name).kill()
            // Killed processes take a moment to go. A group that stays is used again.
            for _ in 0..<50 {
                if try user.removeGroup(name) { break }
                usleep(20_000)
            }
        } catch {
            logger.warning("The control group of a handler stays", metadata: ["error": "\(error)"])
        }
    }
}
