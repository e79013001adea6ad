import FoundationEssentials

/// Rate limiter for the launches of a session's handler.
///
/// Does no I/O and has no clock. Each launch doubles the delay before the next one. The caller makes the doubled
/// delay durable before the launch, so that a crash cannot evade it. The delay resets when a client attaches by
/// itself, or when it elapses without a launch (Apple's rate limiter, as described by Technical Support in forum
/// thread 14854). A new version of the handler starts anew, but after a failure not before the first delay has passed
/// since the last launch: otherwise a client could have a launch for each request.
struct LaunchLimiter: Equatable, Sendable {
    /// Limits of launches.
    struct Policy: Equatable, Sendable {
        /// Delay in seconds after the first launch.
        var delay = 60.0
        /// Maximum delay in seconds.
        var maximumDelay = 86_400.0
        /// Maximum number of consecutive launches without acknowledgement.
        var maximumFailures = 5
    }

    /// Delay in seconds after the last launch; 0 without a recent launch.
    private(set) var penalty = 0.0
    /// Earliest date of the next launch, and of tasks that a launched handler creates.
    private(set) var notBefore: Date?
    /// Number of consecutive launches that ended without acknowledgement.
    private(set) var failures = 0
    /// Token of the current launch.
    private(set) var activeToken: String?
    /// Version of the handler that failed.
    private(set) var version: String?
    /// Boot identifier that the other values belong to.
    private(set) var boot = ""

    /// Decision for a session with events but without a client.
    enum Decision: Equatable {
        /// Start the handler after the changed state is durable.
        case launch
        /// Launch later.
        case wait(until: Date)
        /// Do not launch: a handler is running, or has failed too often.
        case nothing
    }

    /// Decides whether to start the handler now; `token` identifies the launch.
    mutating func decide(
        token: String,
        version: String?,
        boot: String,
        policy: Policy,
        at now: Date
    ) -> Decision {
        // Compares bytes: for Swift's `==`, versions that differ only in Unicode normalization are equal.
        let isNewVersion = self.version.map { Array($0.utf8) } != version.map { Array($0.utf8) }
        let wait = isNewVersion ? earliestStartOfNewVersion(policy, at: now) : nil
        if self.boot != boot || isNewVersion && wait == nil {
            // A reboot or a new version of the handler resets everything.
            self = LaunchLimiter()
            self.boot = boot
            self.version = version
        } else if let wait {
            // Until the new version can be started, the limits are those after a first failure.
            failures = min(failures, 1)
            penalty = policy.delay
            notBefore = wait
        }
        guard activeToken == nil, !isExhausted(policy) else { return .nothing }
        // If the clock was set back, do not wait longer than the delay.
        if failures > 0, let notBefore, notBefore > now, notBefore <= now + penalty {
            return .wait(until: notBefore)
        }
        let hasElapsed = notBefore.map { now >= $0 } ?? true
        penalty = hasElapsed && failures == 0 ? policy.delay : penalty * 2
        penalty = min(max(penalty, policy.delay), policy.maximumDelay)
        notBefore = now + penalty
        activeToken = token
        return .launch
    }

    /// Returns the date until which a new version waits because the last launch has failed; `nil` if it does not.
    private func earliestStartOfNewVersion(_ policy: Policy, at now: Date) -> Date? {
        guard failures > 0, let notBefore else { return nil }
        let lastLaunch = notBefore - penalty
        let date = lastLaunch + policy.delay
        // If the clock was set back, do not wait longer than the delay.
        return date > now && date <= now + policy.delay ? date : nil
    }

    /// Notes that the launched handler has acknowledged its events.
    mutating func acknowledged(_ token: String) {
        guard activeToken == token else { return }
        failures = 0
    }

    /// Notes that the handler has ended.
    mutating func ended(_ token: String, wasAcknowledged: Bool) {
        guard activeToken == token else { return }
        activeToken = nil
        if wasAcknowledged { failures = 0 } else { failures += 1 }
    }

    /// Cancels a launch whose handler was not started.
    mutating func withdraw(_ token: String) {
        if activeToken == token { activeToken = nil }
    }

    /// Returns whether launches have failed too often.
    ///
    /// Only a client that attaches, a reboot, or a new version of the handler resets this.
    func isExhausted(_ policy: Policy) -> Bool { failures >= policy.maximumFailures }

    /// Resets the delay and the failures, since a client attached without being launched.
    mutating func attachedByItself() {
        penalty = 0
        notBefore = nil
        failures = 0
    }

    /// Ends a launch during which the daemon stopped, and counts it as failed.
    mutating func failInterruptedLaunch() {
        guard activeToken != nil else { return }
        activeToken = nil
        failures += 1
    }

    /// Moves the date of the next launch by a change of the clock in seconds.
    mutating func clockChanged(by seconds: Double) {
        notBefore = notBefore.map { $0 + seconds }
    }

    /// Returns the earliest date for tasks that a launched handler creates; `nil` for now.
    func earliestBegin(at now: Date) -> Date? {
        notBefore.flatMap { $0 > now ? min($0, now + penalty) : nil }
    }
}

extension LaunchLimiter: StoredDocument {
    static let blank = LaunchLimiter()
    static let storedMembers: [StoredMember<Self>] = [
        .init("penalty", at: \.penalty),
        .init("notBefore", at: \.notBefore),
        .init("failures", at: \.failures),
        .init("lease", at: \.activeToken),
        .init("handlerVersion", at: \.version),
        .init("boot", at: \.boot),
    ]
}
