import Logging
import StageConditions
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.serialized, .directory, .mockBus) struct ConditionMonitorTests {
    private let bus: MockBus
    private let sysfs: FilePath

    init() throws {
        bus = try MockBus.required()
        sysfs = try TemporaryDirectory.required().path.appending("sys")
    }

    private func monitor(
        _ change: (inout ConditionSources) -> Void = { _ in }
    ) throws
        -> ConditionMonitor
    {
        var sources = ConditionSources()
        sources.busAddress = bus.address
        sources.sysfs = sysfs
        sources.debounce = .zero
        // The services of a busy machine may respond late.
        sources.readingTimeout = .seconds(300)
        change(&sources)
        return try ConditionMonitor(sources: sources, logger: Logger(label: "test"))
    }

    /// Waits until conditions are as expected, and returns how long that took.
    @discardableResult
    private func wait(
        _ monitor: ConditionMonitor,
        _ comment: Comment,
        _ isExpected: @escaping @Sendable (Conditions) -> Bool
    ) async throws -> Duration {
        let clock = ContinuousClock()
        let start = clock.now
        let deadline = start + .seconds(300)
        while clock.now < deadline {
            if isExpected(monitor.current) { return start.duration(to: clock.now) }
            try await Task.sleep(for: .milliseconds(2))
        }
        Issue.record("\(comment.rawValue): \(monitor.current)")
        return start.duration(to: clock.now)
    }

    @Test func theServicesAreRead() async throws {
        try bus.start(.networkManager)
        try bus.set("Metered", of: .networkManager, to: .number(4))
        try bus.start(.power)
        try bus.start(.formerPowerProfiles)
        let monitor = try monitor()
        var expected = Conditions()
        expected.connectivity = .full
        expected.isExpensive = false
        expected.isOnBattery = false
        expected.isSavingPower = false
        #expect(await monitor.settled() == expected)
    }

    @Test(.alone) func changesAreSeenWithinASecond() async throws {
        for object in [.networkManager, .power, .powerProfiles] as [MockBus.Object] {
            try bus.start(object)
        }
        let monitor = try monitor()
        _ = await monitor.settled()
        func change(
            _ name: String,
            _ object: MockBus.Object,
            _ value: MockBus.Value,
            _ isExpected: @escaping @Sendable (Conditions) -> Bool
        ) async throws {
            try bus.set(name, of: object, to: value)
            let taken = try await wait(monitor, "\(name) \(value)", isExpected)
            #expect(taken < .seconds(1), "\(name) \(value)")
        }
        try await change("Metered", .networkManager, .number(1)) { $0.isExpensive == true }
        try await change("Metered", .networkManager, .number(2)) { $0.isExpensive == false }
        try await change("Metered", .networkManager, .number(3)) { $0.isExpensive == true }
        try await change("Metered", .networkManager, .number(0)) { $0.isExpensive == nil }
        try await change("Connectivity", .networkManager, .number(2)) {
            $0.connectivity == .portal
        }
        try await change("Connectivity", .networkManager, .number(4)) { $0.connectivity == .full }
        try await change("OnBattery", .power, .flag(true)) { $0.isOnBattery == true }
        try await change("OnBattery", .power, .flag(false)) { $0.isOnBattery == false }
        try await change("ActiveProfile", .powerProfiles, .text("power-saver")) {
            $0.isSavingPower == true
        }
        try await change("ActiveProfile", .powerProfiles, .text("balanced")) {
            $0.isSavingPower == false
        }
    }

    @Test func aServiceThatGoesIsUnknownAndCountsAgainWhenItIsBack() async throws {
        try bus.start(.networkManager)
        try bus.set("Metered", of: .networkManager, to: .number(1))
        let monitor = try monitor()
        #expect(await monitor.settled().isExpensive == true)
        bus.stop(.networkManager)
        try await wait(monitor, "gone") { $0 == .unknown }
        try bus.start(.networkManager)
        try await wait(monitor, "back") { $0.connectivity == .full && $0.isExpensive == nil }
        try bus.set("Metered", of: .networkManager, to: .number(3))
        try await wait(monitor, "metered again") { $0.isExpensive == true }
    }

    @Test func aBusThatIsKilledIsUnknownAndCountsAgainWhenItIsBack() async throws {
        try bus.start(.power)
        try bus.set("OnBattery", of: .power, to: .flag(true))
        let monitor = try monitor()
        #expect(await monitor.settled().isOnBattery == true)
        for round in 1...2 {
            bus.kill()
            try await wait(monitor, "killed \(round)") { $0 == .unknown }
            try bus.start()
            try bus.start(.power)
            try await wait(monitor, "back \(round)") { $0.isOnBattery == false }
            try bus.set("OnBattery", of: .power, to: .flag(true))
            try await wait(monitor, "on battery \(round)") { $0.isOnBattery == true }
        }
    }

    @Test func aBusThatComesLateIsFound() async throws {
        bus.kill()
        let monitor = try monitor { $0.readingTimeout = .milliseconds(10) }
        #expect(await monitor.settled() == .unknown)
        try bus.start()
        try bus.start(.networkManager)
        try await wait(monitor, "there") { $0.connectivity == .full }
    }

    @Test(.alone) func aBusThatDoesNotAnswerDelaysNoRequest() async throws {
        try bus.start(.networkManager)
        try bus.freeze()
        let start = ContinuousClock.now
        let monitor = try monitor { $0.readingTimeout = .milliseconds(10) }
        #expect(await monitor.settled() == .unknown)
        #expect(start.duration(to: .now) < .seconds(1))
        try bus.thaw()
        try await wait(monitor, "thawed") { $0.connectivity == .full }
    }

    @Test func anAddressThatMakesNoSenseHarmsNothing() async throws {
        let monitor = try monitor { sources in
            sources.busAddress = "nonsense"
            sources.readingTimeout = .milliseconds(10)
        }
        #expect(await monitor.settled() == .unknown)
    }

    @Test func propertiesOfOtherTypesHarmNothing() async throws {
        for object in [.networkManager, .power, .powerProfiles] as [MockBus.Object] {
            try bus.start(object)
        }
        try bus.set("Metered", of: .networkManager, to: .text("yes"))
        try bus.set("Connectivity", of: .networkManager, to: .number(77))
        try bus.set("OnBattery", of: .power, to: .texts(["a", "b"]))
        try bus.set("ActiveProfile", of: .powerProfiles, to: .real(.pi))
        let monitor = try monitor()
        #expect(await monitor.settled() == .unknown)
        // Signals with values of a wrong type are ignored, too, and correct values beside them count.
        try bus.set("Metered", of: .networkManager, to: .flag(true))
        try bus.set("OnBattery", of: .power, to: .flag(true))
        try await wait(monitor, "on battery") { $0.isOnBattery == true }
        var expected = Conditions()
        expected.isOnBattery = true
        #expect(monitor.current == expected)
    }

    @Test func streamsBeginWithWhatCountsAndEndWithTheMonitor() async throws {
        try bus.start(.networkManager)
        let monitor = try monitor()
        _ = await monitor.settled()
        var changes = monitor.changes().makeAsyncIterator()
        #expect(await changes.next()?.isExpensive == nil)
        try bus.set("Metered", of: .networkManager, to: .number(1))
        #expect(await changes.next()?.isExpensive == true)
        monitor.stop()
        #expect(await changes.next() == nil)
        #expect(await monitor.settled().isExpensive == true)
    }

    @Test func withoutABusPowerIsReadFromTheKernel() async throws {
        bus.kill()
        let directory = try TemporaryDirectory.required()
        try supply(directory, "AC", ["type": "Mains", "online": "1"])
        try supply(directory, "BAT0", ["type": "Battery", "status": "Charging"])
        for isOnBattery in [false, true] {
            let monitor = try monitor { $0.readingTimeout = .milliseconds(10) }
            var expected = Conditions()
            expected.isOnBattery = isOnBattery
            #expect(await monitor.settled() == expected)
            try supply(directory, "AC", ["online": "0"])
            try supply(directory, "BAT0", ["status": "Discharging"])
        }
    }

    @Test func theKernelIsReadWhenUPowerGoes() async throws {
        let directory = try TemporaryDirectory.required()
        try supply(directory, "BAT0", ["type": "Battery", "status": "Discharging"])
        try bus.start(.power)
        let monitor = try monitor()
        #expect(await monitor.settled().isOnBattery == false)
        bus.stop(.power)
        try await wait(monitor, "kernel") { $0.isOnBattery == true }
    }

    private func supply(
        _ directory: Directory,
        _ name: String,
        _ attributes: [String: String]
    ) throws {
        var folder = directory
        for name in ["sys", "class", "power_supply", name] {
            folder = try folder.directory(FilePath(name)) ?? folder.makeDirectory(FilePath(name))
        }
        for (attribute, value) in attributes {
            let name = try #require(FilePath.Component(attribute))
            try folder.write(Array("\(value)\n".utf8), to: name, durably: false)
        }
    }
}
