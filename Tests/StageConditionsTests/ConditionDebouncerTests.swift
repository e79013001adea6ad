import StageTesting
import Testing

@testable import StageConditions

struct ConditionDebouncerTests {
    /// Readings with their times, and the conditions in effect afterwards.
    struct Row: CustomTestStringConvertible, Sendable {
        var testDescription: String
        var steps: [(seconds: Double, read: Conditions, counts: Conditions)]
    }

    private static func conditions(_ change: (inout Conditions) -> Void) -> Conditions {
        var conditions = Conditions()
        change(&conditions)
        return conditions
    }

    private static let unknown = Conditions.unknown
    private static let full = conditions { $0.connectivity = .full }
    private static let limited = conditions { $0.connectivity = .limited }
    private static let portal = conditions { $0.connectivity = .portal }
    private static let none = conditions { $0.connectivity = .none }
    private static let metered = conditions { $0.isExpensive = true }
    private static let unmetered = conditions { $0.isExpensive = false }
    private static let saving = conditions { $0.isSavingPower = true }
    private static let onBattery = conditions { $0.isOnBattery = true }
    private static let both = conditions {
        $0.isOnBattery = true
        $0.isExpensive = true
    }

    /// The rows assume a delay of 5 s.
    static let rows = [
        Row(
            testDescription: "an obstacle counts at once, its end after the delay",
            steps: [
                (0, metered, metered), (1, unmetered, metered), (5.9, unmetered, metered),
                (6, unmetered, unmetered),
            ]
        ),
        Row(
            testDescription: "an obstacle that comes back starts the delay anew",
            steps: [
                (0, none, none), (1, full, none), (5, none, none), (6, full, none),
                (10.9, full, none), (11, full, full),
            ]
        ),
        Row(
            testDescription: "a service that restarts is passed over",
            steps: [
                (0, metered, metered), (1, unknown, metered), (2, metered, metered),
                (60, metered, metered),
            ]
        ),
        Row(
            testDescription: "the last of several readings without the obstacle counts",
            steps: [
                (0, portal, portal), (1, unknown, portal), (3, limited, portal),
                (6, limited, limited),
            ]
        ),
        Row(
            testDescription: "what is no obstacle counts at once",
            steps: [(0, full, full), (0, limited, limited), (0, unknown, unknown)]
        ),
        Row(
            testDescription: "one obstacle takes the place of another of its kind at once",
            steps: [(0, portal, portal), (0, none, none), (1, portal, portal)]
        ),
        Row(
            testDescription: "each kind of obstacle has a delay of its own",
            steps: [
                (0, both, both), (1, metered, both), (3, unknown, both), (6, unknown, metered),
                (8, unknown, unknown),
            ]
        ),
        Row(
            testDescription: "saving power is an obstacle too",
            steps: [(0, saving, saving), (4, unknown, saving), (9, unknown, unknown)]
        ),
    ]

    @Test(arguments: rows)
    func aChangeCountsWhenTheRulesSaySo(row: Row) {
        var debouncer = ConditionDebouncer(delay: .seconds(5))
        for (seconds, read, counts) in row.steps {
            let before = debouncer.current
            let hasChanged = debouncer.take(read, at: .seconds(seconds))
            #expect(debouncer.current == counts, "after \(seconds) s")
            #expect(hasChanged == (before != counts), "after \(seconds) s")
        }
    }

    @Test func theDeadlineIsThatOfTheFirstConditionToClear() {
        var debouncer = ConditionDebouncer(delay: .seconds(5))
        #expect(debouncer.deadline == nil)
        _ = debouncer.take(Self.both, at: .zero)
        #expect(debouncer.deadline == nil)
        _ = debouncer.take(Self.onBattery, at: .seconds(1))
        #expect(debouncer.deadline == .seconds(6))
        _ = debouncer.take(Self.unknown, at: .seconds(2))
        #expect(debouncer.deadline == .seconds(6))
        let isUnmetered = debouncer.advance(to: .seconds(6))
        #expect(isUnmetered)
        #expect(debouncer.current == Self.onBattery)
        #expect(debouncer.deadline == .seconds(7))
        let isFree = debouncer.advance(to: .seconds(7))
        #expect(isFree)
        #expect(debouncer.deadline == nil)
    }

    @Test func initialConditionsStayUntilAReading() {
        var debouncer = ConditionDebouncer(delay: .seconds(5), initial: Self.metered)
        #expect(debouncer.current == Self.metered)
        let hasChanged = debouncer.advance(to: .seconds(60))
        #expect(!hasChanged)
        #expect(debouncer.current == Self.metered)
        #expect(debouncer.deadline == nil)
        _ = debouncer.take(Self.unmetered, at: .seconds(61))
        #expect(debouncer.current == Self.metered)
        #expect(debouncer.deadline == .seconds(66))
    }

    @Test func withoutADelayEverythingCountsAtOnce() {
        var debouncer = ConditionDebouncer(delay: .zero)
        for conditions in [Self.both, Self.unmetered, Self.none, Self.unknown] {
            _ = debouncer.take(conditions, at: .zero)
            #expect(debouncer.current == conditions)
        }
    }

    @Test(arguments: 0..<200 as Range<UInt64>)
    func conditionsFollowTheReadings(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let delay = Duration.milliseconds(Int.random(in: 0...3000, using: &random))
        var debouncer = ConditionDebouncer(delay: delay)
        var now = Duration.zero
        var read = Conditions()
        /// The time at which each obstacle was last read.
        var seen: [ConditionNeed: Duration] = [:]
        for _ in 0..<200 {
            // The last reading was valid until now.
            for need in ConditionNeed.allCases where !read.isSatisfied(need) { seen[need] = now }
            read = Bool.random(using: &random) ? read : .random(using: &random)
            _ = debouncer.take(read, at: now)
            for need in ConditionNeed.allCases {
                let isHeld = seen[need].map { now - $0 < delay } ?? false
                let isMet = read.isSatisfied(need) && !isHeld
                #expect(debouncer.current.isSatisfied(need) == isMet, "\(need) at \(now)")
            }
            if let deadline = debouncer.deadline { #expect(deadline > now) }
            now += .milliseconds(Int.random(in: 1...2000, using: &random))
        }
        now += delay
        _ = debouncer.take(read, at: now)
        _ = debouncer.advance(to: now + delay)
        #expect(debouncer.current == read)
        #expect(debouncer.deadline == nil)
    }
}

extension Conditions {
    fileprivate static func random(using random: inout SeededGenerator) -> Conditions {
        let flags: [Bool?] = [nil, false, true]
        var conditions = Conditions()
        conditions.connectivity = Connectivity.allCases.randomElement(using: &random) ?? .unknown
        conditions.isExpensive = flags.randomElement(using: &random) ?? nil
        conditions.isOnBattery = flags.randomElement(using: &random) ?? nil
        conditions.isSavingPower = flags.randomElement(using: &random) ?? nil
        return conditions
    }
}
