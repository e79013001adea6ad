import FoundationEssentials
import Logging
import StageContainer
import StageEngine
import StageModel
import StageTesting
import StageTransfer
import StagingService
import SystemPackage
import Testing

/// Conditions of network and power for periodic runs without a daemon.
@Suite(.server, .directory, .mockBus, .timeLimit(.minutes(5)))
struct UpdateConditionTests {
    private let bus: MockBus

    init() throws {
        bus = try .required()
        try bus.startWithoutRestrictions()
    }

    /// The state of network and power, and the conditions of the registration.
    struct Case: Sendable, CustomTestStringConvertible {
        var isMetered = false
        var isOnBattery = false
        /// NetworkManager's `NMConnectivityState`.
        var connectivity: UInt32 = 4
        var conditions = UpdateConditions()
        /// The reasons for which the pack that is not essential waits.
        var reasons: [String] = []

        var testDescription: String {
            "metered: \(isMetered), battery: \(isOnBattery), connectivity: \(connectivity), \(conditions)"
        }
    }

    static let cases = [
        Case(),
        Case(isMetered: true, reasons: ["metered"]),
        Case(isOnBattery: true, reasons: ["onBattery"]),
        Case(connectivity: 1, reasons: ["offline"]),
        Case(connectivity: 2, reasons: ["portal"]),
        Case(connectivity: 3),
        Case(isMetered: true, isOnBattery: true, reasons: ["metered", "onBattery"]),
        Case(
            isMetered: true,
            isOnBattery: true,
            conditions: UpdateConditions(allowsExpensiveNetworkAccess: true),
            reasons: ["onBattery"]
        ),
        Case(
            isMetered: true,
            isOnBattery: true,
            conditions: UpdateConditions(requiresExternalPower: false),
            reasons: ["metered"]
        ),
        Case(
            isMetered: true,
            isOnBattery: true,
            conditions: UpdateConditions(
                requiresExternalPower: false,
                allowsExpensiveNetworkAccess: true,
                allowsConstrainedNetworkAccess: true
            )
        ),
    ]

    private func run(
        _ world: World,
        _ request: ContentRequest,
        _ conditions: UpdateConditions,
        settings: CommandSettings = CommandSettings()
    ) async throws -> [String: PackResult] {
        var target = StagingTarget(manifests: [world.manifestURL], environment: [:])
        target.container = world.container
        var registration = Registration(
            application: try ApplicationID("net.example.wallpaper"),
            version: "1.0",
            group: try ApplicationGroupID("net.example"),
            manifestURLs: [world.manifestURL],
            trust: .transport
        )
        registration.updateConditions = conditions
        target.registration = registration
        var options = StagerOptions { Int64(Date().timeIntervalSince1970) }
        options.unpacking = .process(
            try Program.path,
            arguments: ["stagepack", "unpack-service"]
        )
        var staging = StagingRequest(
            .event(request, essentialOnly: false),
            of: target,
            options: options
        )
        staging.usesDaemon = false
        staging.settings = settings
        staging.busAddress = bus.address
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let results = try await StagingService(staging, logger: logger) { _ in }.stage()
        return Dictionary(uniqueKeysWithValues: results[0].packs.map { ($0.id.text, $0) })
    }

    @Test(arguments: cases)
    func aPeriodicRunWaitsForTheConditionsOfTheRegistration(_ example: Case) async throws {
        var world = try World()
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        let packs: [SamplePack] = [
            try .small(try PackID("title"), policy: .essential(events)),
            try .small(try PackID("voices"), policy: .prefetch(events)),
        ]
        try world.publish(packs)
        try bus.set("Metered", of: .networkManager, to: .number(example.isMetered ? 1 : 2))
        try bus.set("OnBattery", of: .power, to: .flag(example.isOnBattery))
        try bus.set("Connectivity", of: .networkManager, to: .number(example.connectivity))

        let periodic = try await run(world, .periodic, example.conditions)
        #expect(periodic["title"]?.outcome == .staged)
        let voices = try #require(periodic["voices"])
        if example.reasons.isEmpty {
            #expect(voices.outcome == .staged)
        } else {
            #expect(voices.outcome == .waiting)
            #expect(voices.reason == .held(example.reasons))
        }
        // Runs for a person or a hook do not wait for network and power.
        let install = try await run(world, .install, example.conditions)
        let isThere = install["voices"].map { [.staged, .present].contains($0.outcome) }
        #expect(isThere == true)
    }

    @Test func conditionsOfTheMachineOverrideThoseOfTheRegistration() async throws {
        var world = try World()
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        try world.publish(try .small(try PackID("voices"), policy: .prefetch(events)))
        try bus.set("Metered", of: .networkManager, to: .number(1))
        var settings = CommandSettings()
        settings.updateConditions = UpdateConditions()
        let anyNetwork = UpdateConditions(allowsExpensiveNetworkAccess: true)
        let held = try await run(world, .periodic, anyNetwork, settings: settings)
        #expect(held["voices"]?.reason == .held(["metered"]))
        settings.updateConditions = anyNetwork
        let staged = try await run(world, .periodic, UpdateConditions(), settings: settings)
        #expect(staged["voices"]?.outcome == .staged)
    }
}
