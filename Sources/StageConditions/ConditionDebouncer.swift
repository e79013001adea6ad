/// Debouncer that decides when a change of conditions takes effect.
///
/// A new obstacle takes effect at once, so that transfers stop using money or power. Its end takes effect after a
/// delay, since networks that come back tend to fail again, and each start of a transfer costs connections and a
/// final checkpoint. Other changes take effect at once.
///
/// Does no I/O: time is an argument, relative to any fixed point.
struct ConditionDebouncer {
    /// Time for which an obstacle must be gone.
    let delay: Duration

    /// Conditions in effect.
    private(set) var current: Conditions
    /// Conditions read last.
    private var latest: Conditions
    /// Times at which obstacles ended that are still in effect.
    private var goneSince: [ConditionNeed: Duration] = [:]

    init(delay: Duration, initial: Conditions = .unknown) {
        self.delay = delay
        current = initial
        latest = initial
    }

    /// Next time at which ``advance(to:)`` has an effect.
    var deadline: Duration? { goneSince.values.min().map { $0 + delay } }

    /// Adds a reading; returns whether the conditions in effect have changed.
    mutating func take(_ conditions: Conditions, at now: Duration) -> Bool {
        latest = conditions
        return advance(to: now)
    }

    /// Advances the time; returns whether the conditions in effect have changed.
    mutating func advance(to now: Duration) -> Bool {
        let before = current
        for need in ConditionNeed.allCases { update(need, at: now) }
        return current != before
    }

    private mutating func update(_ need: ConditionNeed, at now: Duration) {
        if !current.isSatisfied(need), latest.isSatisfied(need) {
            let start = goneSince[need] ?? now
            goneSince[need] = start
            guard now - start >= delay else { return }
        }
        goneSince[need] = nil
        current.copy(need, from: latest)
    }
}

extension Conditions {
    /// Copies the reading that decides about a need.
    fileprivate mutating func copy(_ need: ConditionNeed, from other: Conditions) {
        switch need {
        case .network: connectivity = other.connectivity
        case .inexpensiveNetwork: isExpensive = other.isExpensive
        case .mainsPower: isOnBattery = other.isOnBattery
        case .fullPower: isSavingPower = other.isSavingPower
        }
    }
}

/// Requirement of transfers that the debouncer tracks separately from the others.
enum ConditionNeed: Hashable, CaseIterable {
    /// A usable network.
    case network
    /// A network that is not metered.
    case inexpensiveNetwork
    /// External power.
    case mainsPower
    /// A power saver that is off.
    case fullPower
}

extension Conditions {
    /// Returns whether the conditions meet a requirement; unknown conditions do.
    func isSatisfied(_ need: ConditionNeed) -> Bool {
        switch need {
        case .network: connectivity != .none && connectivity != .portal
        case .inexpensiveNetwork: isExpensive != true
        case .mainsPower: isOnBattery != true
        case .fullPower: isSavingPower != true
        }
    }
}
