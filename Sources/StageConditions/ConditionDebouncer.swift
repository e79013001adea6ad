/// Debouncer that decides when a change of conditions takes effect.
///
/// A new obstacle takes effect at once, so that transfers stop using money or power. Its end takes effect after a
/// delay, since networks that come back tend to fail again, and each start of a transfer costs connections and a
/// final checkpoint. Other changes take effect at once. The battery's charge has a hysteresis: small changes are
/// accumulated, so that a value near a threshold does not oscillate.
///
/// Does no I/O: time is an argument, relative to any fixed point.
struct ConditionDebouncer {
    /// Time for which an obstacle must be gone.
    let delay: Duration
    /// Minimum change of the battery's charge, in percentage points.
    let batteryStep: Int

    /// Conditions in effect.
    private(set) var current: Conditions
    /// Conditions read last.
    private var latest: Conditions
    /// Times at which obstacles ended that are still in effect.
    private var goneSince: [ConditionNeed: Duration] = [:]

    init(delay: Duration, batteryStep: Int, initial: Conditions = .unknown) {
        self.delay = delay
        self.batteryStep = batteryStep
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
        for need in ConditionNeed.allCases { settle(need, at: now) }
        settleBattery()
        return current != before
    }

    private mutating func settle(_ need: ConditionNeed, at now: Duration) {
        if !current.isSatisfied(need), latest.isSatisfied(need) {
            let start = goneSince[need] ?? now
            goneSince[need] = start
            guard now - start >= delay else { return }
        }
        goneSince[need] = nil
        current.copy(need, from: latest)
    }

    private mutating func settleBattery() {
        if let old = current.batteryPercentage, let new = latest.batteryPercentage,
            abs(new - old) < batteryStep
        {
            return
        }
        current.batteryPercentage = latest.batteryPercentage
    }
}

extension Conditions {
    /// Copies the reading that decides about a need.
    fileprivate mutating func copy(_ need: ConditionNeed, from other: Conditions) {
        switch need {
        case .network: connectivity = other.connectivity
        case .inexpensiveNetwork: isExpensive = other.isExpensive
        case .unconstrainedNetwork: isConstrained = other.isConstrained
        case .mainsPower: isOnBattery = other.isOnBattery
        case .fullPower: isSavingPower = other.isSavingPower
        }
    }
}
