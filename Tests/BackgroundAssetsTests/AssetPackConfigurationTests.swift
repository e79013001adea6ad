import StageContainer
import StageModel
import StagePack
import StageSystem
import StageTesting
import Testing

@testable import BackgroundAssets

@Suite(.server, .directory)
struct AssetPackConfigurationTests {
    private typealias Failure = AssetPackManager.ConfigurationError

    /// Every member throws the configuration's error, and none of them traps.
    private func expect(
        _ error: AssetPackManager.ConfigurationError,
        of manager: AssetPackManager
    )
        async throws
    {
        var world = try ManagedWorld()
        let sample = try ManagedPack("aurora")
        try world.publish(sample)
        let pack = try await world.manager().assetPack(withID: "aurora")
        #expect(!manager.assetPackIsAvailableLocally(withID: "aurora"))
        #expect(await manager.localStatus(ofAssetPackWithID: "aurora") == [])
        _ = manager.statusUpdates
        _ = manager.statusUpdates(forAssetPackWithID: "aurora")
        #expect(throws: error) { try manager.contents(at: "a") }
        #expect(throws: error) { try manager.descriptor(for: "a") }
        #expect(throws: error) { try manager.url(for: "a") }
        #expect(throws: error) { try manager.localVersion(ofAssetPackWithID: "aurora") }
        await #expect(throws: error) { try await manager.manifest }
        await #expect(throws: error) { try await manager.allAssetPacks }
        await #expect(throws: error) { try await manager.assetPack(withID: "aurora") }
        await #expect(throws: error) { try await manager.status(relativeTo: pack) }
        await #expect(throws: error) { try await manager.status(ofAssetPackWithID: "aurora") }
        await #expect(throws: error) { try await manager.ensureLocalAvailability(of: pack) }
        await #expect(throws: error) { try await manager.ensureLocalAvailability(of: [pack]) }
        await #expect(throws: error) { try await manager.checkForUpdates() }
        await #expect(throws: error) { try await manager.remove(assetPackWithID: "aurora") }
        await #expect(throws: error) {
            try await manager.localSize(
                ofAssetPackWithID: "aurora",
                calculationMethod: .allocated
            )
        }
    }

    @Test func withoutAConfigurationEveryCallSaysSo() async throws {
        try await expect(.missing, of: AssetPackManager(nil, environment: [:]))
        #expect(Failure.missing.localizedDescription.contains("STAGEPACK_APP"))
    }

    @Test func anApplicationThatIsNotRegisteredIsNamed() async throws {
        let folder = try TemporaryDirectory.required().path.appending("config")
        let manager = AssetPackManager(
            configuration: .init(application: "net.example.unknown"),
            environment: ["XDG_CONFIG_HOME": folder.string]
        )
        let reason =
            "application 'net.example.unknown' is not registered in '/usr/share/stagepack/apps.d', "
            + "'/etc/stagepack/apps.d', '\(folder)/stagepack/apps.d'"
        try await expect(.invalid(reason), of: manager)
        manager.configuration = .init(application: "a/b")
        let error = #expect(throws: Failure.self) { try manager.url(for: "a") }
        #expect(error?.localizedDescription.hasPrefix("application: expected") ?? false)
    }

    @Test func aRegisteredApplicationIsNamedByTheEnvironment() async throws {
        var world = try ManagedWorld()
        try world.publish(try ManagedPack("aurora"))
        let home = try TemporaryDirectory.required()
        let registration = Registration(
            application: try ApplicationID("net.example.wallpaper"),
            version: "1.0",
            group: try ApplicationGroupID("net.example"),
            manifestURLs: [world.server.url("/manifest.json")],
            trust: .transport
        )
        let folder = home.path.appending("config/stagepack/apps.d")
        try Directory.make(folder).write(
            registration.json(),
            to: "net.example.wallpaper.json",
            durably: false
        )
        let container = home.path.appending("data/stagepack/groups/net.example")
        let writer = try world.manager { $0.containers = [container] }
        try await writer.ensureLocalAvailability(of: writer.assetPack(withID: "aurora"))
        let manager = AssetPackManager(
            nil,
            environment: [
                "STAGEPACK_APP": "net.example.wallpaper",
                "XDG_CONFIG_HOME": home.path.appending("config").string,
                "XDG_DATA_HOME": home.path.appending("data").string,
            ]
        )
        #expect(try manager.source().store.containers.first == container)
        #expect(manager.assetPackIsAvailableLocally(withID: "aurora"))
        #expect(try await manager.assetPack(withID: "aurora").stagedVersion == 1)
        try await manager.remove(assetPackWithID: "aurora")
        #expect(!writer.assetPackIsAvailableLocally(withID: "aurora"))
    }

    @Test func aStatusComparesTheStagedAndTheOfferedVersion() throws {
        let (first, second) = (try ManagedPack("aurora"), try ManagedPack("aurora", version: 2))
        var again = first
        again.pack.archive?.digest = second.pack.contentDigest
        let old = AssetPack(first.pack, stagedVersion: nil)
        let new = AssetPack(second.pack, stagedVersion: nil)
        let republished = AssetPack(again.pack, stagedVersion: nil)
        let staged = GenerationName(version: 1, digest: first.pack.contentDigest)
        typealias Status = AssetPack.Status
        #expect(Status(of: old, staged: nil, offer: old) == .downloadAvailable)
        #expect(Status(of: old, staged: nil, offer: nil) == .obsolete)
        #expect(Status(of: old, staged: staged, offer: old) == [.downloaded, .upToDate])
        #expect(Status(of: old, staged: staged, offer: new) == [.downloaded, .upToDate])
        #expect(
            Status(of: new, staged: staged, offer: new)
                == [.downloaded, .outOfDate, .updateAvailable]
        )
        #expect(Status(of: new, staged: staged, offer: old) == [.downloaded, .outOfDate])
        #expect(
            Status(of: new, staged: staged, offer: nil) == [.downloaded, .outOfDate, .obsolete]
        )
        #expect(Status(of: nil, staged: staged, offer: nil) == [.downloaded, .obsolete])
        #expect(
            Status(of: republished, staged: staged, offer: republished)
                == [.downloaded, .outOfDate, .updateAvailable]
        )
    }
}
