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

    @Test func aNewerVersionOfAnotherApplicationOfTheGroupIsUpToDate() async throws {
        let world = try ManagedWorld()
        let config = try TemporaryDirectory.required().path.appending("config")
        let samples = [try ManagedPack("common"), try ManagedPack("common", version: 2)]
        let names = ["net.example.wallpaper", "net.example.second"]
        for (name, sample) in zip(names, samples) {
            let url = world.server.url("/\(name).json")
            let registration = Registration(
                application: try ApplicationID(name),
                version: "1.0",
                group: try ApplicationGroupID("net.example"),
                manifestURLs: [url],
                trust: .transport
            )
            let component = try #require(FilePath.Component("\(name).json"))
            try Directory.make(config.appending("stagepack/apps.d")).write(
                registration.json(),
                to: component,
                durably: false
            )
            let manifest = Manifest(
                application: registration.application,
                revision: 1,
                packs: [sample.pack]
            )
            world.server.answer("/\(name).json", with: .content(manifest.json()))
            world.server.answer(sample.path, with: .content(sample.archive))
        }
        func manager(_ name: String) throws -> AssetPackManager {
            var configuration = AssetPackManager.Configuration(application: name)
            configuration.containers = [world.container]
            configuration.fetcher = CommandFetcher(
                source: .manifest(url: world.server.url("/\(name).json")),
                command: try BuiltProgram.path(of: "stagepack"),
                arguments: ["--attempts", "1"]
            )
            return AssetPackManager(
                configuration: configuration,
                environment: ["XDG_CONFIG_HOME": config.string]
            )
        }
        let second = try manager("net.example.second")
        try await second.ensureLocalAvailability(of: second.assetPack(withID: "common"))
        let first = try manager("net.example.wallpaper")
        #expect(try await first.checkForUpdates().updatingIDs == [])
        let pack = try await first.assetPack(withID: "common")
        #expect(pack.version == 1)
        try await first.ensureLocalAvailability(of: pack, requireLatestVersion: true)
        try await first.ensureLocalAvailability(of: [pack], requireLatestVersions: true)
        #expect(try await first.status(relativeTo: pack) == [.downloaded, .upToDate])
        let status = try await first.status(ofAssetPackWithID: "common")
        #expect(status == [.downloaded, .upToDate])
        #expect(try first.localVersion(ofAssetPackWithID: "common") == 2)
        #expect(world.server.counts(for: samples[0].path).requests == 0)
        // If the registration of the other application is removed, its version is forgotten.
        try Directory.open(config.appending("stagepack/apps.d")).remove("net.example.second.json")
        let outdated: AssetPack.Status = [.downloaded, .outOfDate, .updateAvailable]
        #expect(try await first.status(ofAssetPackWithID: "common") == outdated)
        #expect(try await first.checkForUpdates().updatingIDs == ["common"])
        try await poll { try first.localVersion(ofAssetPackWithID: "common") == 1 }
    }

    @Test func aNewerVersionInAnotherContainerIsUpToDate() async throws {
        var world = try ManagedWorld()
        let system = try TemporaryDirectory.required().path.appending("system")
        try world.publish(try ManagedPack("aurora", version: 2))
        let writer = try world.manager { $0.containers = [system] }
        try await writer.ensureLocalAvailability(of: writer.assetPack(withID: "aurora"))
        try world.publish(try ManagedPack("aurora"))
        let manager = try world.manager { $0.containers = [world.container, system] }
        #expect(try await manager.checkForUpdates().updatingIDs == [])
        let status = try await manager.status(ofAssetPackWithID: "aurora")
        #expect(status == [.downloaded, .upToDate])
        #expect(try manager.localVersion(ofAssetPackWithID: "aurora") == 2)
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
        let kept: Status = [.downloaded, .upToDate]
        #expect(Status(of: new, staged: staged, offer: new, isKept: true) == kept)
        #expect(
            Status(of: new, staged: staged, offer: old, isKept: true) == [.downloaded, .outOfDate]
        )
        #expect(
            Status(of: republished, staged: staged, offer: republished)
                == [.downloaded, .outOfDate, .updateAvailable]
        )
    }
}
