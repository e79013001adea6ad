import FoundationEssentials

/// Decides when a session's handler is started.
///
/// It does nothing itself and knows no clock. Each launch doubles the delay before the next one, and
/// the doubling is on disk before the launch, so that nothing that dies can evade
/// it; a client that comes by itself, or a delay that passes without a launch, ends it (Apple's rate
/// limiter, as Technical Support describes it in the forum thread 14854).
struct Relaunch: Equatable, Sendable {
    /// How launches are limited.
    struct Policy: Equatable, Sendable {
        /// The delay after the first launch.
        var delay = 60.0
        /// What the delay does not exceed.
        var maximumDelay = 86_400.0
        /// How many launches in a row may end without acknowledgement.
        var maximumFailures = 5
    }

    /// The delay after the last launch in seconds; 0 if there was none lately.
    private(set) var penalty = 0.0
    /// The next launch is not before, and tasks that a launched handler creates wait until then.
    private(set) var notBefore: Date?
    /// How many launches in a row ended without acknowledgement.
    private(set) var failures = 0
    /// The token of the launch that is under way.
    private(set) var lease: String?
    /// The version of the handler that failed.
    private(set) var version: String?
    /// The run of the kernel in which all this was so.
    private(set) var boot = ""

    /// What is to be done about a session that has something to tell and no client.
    enum Decision: Equatable {
        /// Start the handler, after the change is on disk.
        case launch
        /// Not yet.
        case wait(until: Date)
        /// A handler runs, or has failed too often.
        case nothing
    }

    /// Decides whether the handler is started now; `token` names the launch.
    mutating func decide(
        token: String,
        version: String?,
        boot: String,
        policy: Policy,
        at now: Date
    ) -> Decision {
        if self.boot != boot || self.version != version {
            // Another machine run, or another program: what was known says nothing about it.
            self = Relaunch()
            self.boot = boot
            self.version = version
        }
        guard lease == nil, !isExhausted(policy) else { return .nothing }
        // A clock that was set back must not hold a launch for longer than the delay.
        if failures > 0, let notBefore, notBefore > now, notBefore <= now + penalty {
            return .wait(until: notBefore)
        }
        let hasElapsed = notBefore.map { now >= $0 } ?? true
        penalty = hasElapsed && failures == 0 ? policy.delay : penalty * 2
        penalty = min(max(penalty, policy.delay), policy.maximumDelay)
        notBefore = now + penalty
        lease = token
        return .launch
    }

    /// Takes note that the handler of a launch has acknowledged what there was.
    mutating func acknowledged(_ token: String) {
        guard lease == token else { return }
        failures = 0
    }

    /// Takes note that the handler has ended.
    mutating func ended(_ token: String, wasAcknowledged: Bool) {
        guard lease == token else { return }
        lease = nil
        if wasAcknowledged { failures = 0 } else { failures += 1 }
    }

    /// Ends a launch whose handler was not started.
    mutating func withdraw(_ token: String) {
        if lease == token { lease = nil }
    }

    /// Whether only a client, another start of the machine or another program ends the failures.
    func isExhausted(_ policy: Policy) -> Bool { failures >= policy.maximumFailures }

    /// Takes note that a client came by itself.
    mutating func attachedByItself() {
        penalty = 0
        notBefore = nil
        failures = 0
    }

    /// Takes note that the daemon died while a handler ran: the launch counts, and is over.
    mutating func recover() {
        guard lease != nil else { return }
        lease = nil
        failures += 1
    }

    /// When tasks may begin that a launched handler creates.
    func earliestBegin(at now: Date) -> Date? {
        notBefore.flatMap { $0 > now ? min($0, now + penalty) : nil }
    }
}

extension Relaunch: StoredDocument {
    static let blank = Relaunch()
    static let storedMembers: [StoredMember<Self>] = [
        .init("penalty", at: \.penalty),
        .init("notBefore", at: \.notBefore),
        .init("failures", at: \.failures),
        .init("lease", at: \.lease),
        .init("handlerVersion", at: \.version),
        .init("boot", at: \.boot),
    ]
}
