/// Decides when a change of conditions counts.
///
/// An obstacle counts at once: no more money is spent and no more power drawn than what was under
/// way. That an obstacle is gone counts once it has been gone for a while, since networks that come
/// back tend to go again, and each start of a transfer costs connections and a checkpoint at its end.
/// Changes that are neither count at once. The battery's charge has a hysteresis of its own: small
/// changes are kept back until they add up, so a value at a threshold does not cross it to and fro.
///
/// A pure value: time is an argument, measured from wherever the caller likes.
struct ConditionDebouncer {
    /// How long an obstacle has to be gone.
    let delay: Duration
    /// By how many points the battery has to change.
    let batteryStep: Int

    /// What counts.
    private(set) var current: Conditions
    /// What was read last.
    private var latest: Conditions
    /// Since when the obstacles that still count are gone.
    private var goneSince: [ConditionNeed: Duration] = [:]

    init(delay: Duration, batteryStep: Int, initial: Conditions = .unknown) {
        self.delay = delay
        self.batteryStep = batteryStep
        current = initial
        latest = initial
    }

    /// When ``advance(to:)`` has something to do, unless something else is read before.
    var deadline: Duration? { goneSince.values.min().map { $0 + delay } }

    /// Takes in what was read, and returns whether something else counts now.
    mutating func take(_ conditions: Conditions, at now: Duration) -> Bool {
        latest = conditions
        return advance(to: now)
    }

    /// Lets time pass, and returns whether something else counts now.
    mutating func advance(to now: Duration) -> Bool {
        let before = current
        for need in ConditionNeed.allCases { settle(need, now) }
        settleBattery()
        return current != before
    }

    private mutating func settle(_ need: ConditionNeed, _ now: Duration) {
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
    /// Takes over the reading that decides about a need.
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
