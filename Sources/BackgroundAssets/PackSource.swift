import StageContainer
import StageControl
import StageModel
import StagePack
import StageSystem
import Synchronization
import SystemPackage

/// The packs of one application: those that its manifest offers, and those that are staged.
final class PackSource: Sendable {
    /// Identifies the application's manifest in a container.
    enum Catalogue: Sendable {
        case application(ApplicationID)
        case manifest(url: String)
    }

    let store: PackStore
    private let catalogue: Catalogue
    /// The last parsed manifest, cached because it may have thousands of packs.
    private let known = Mutex<(record: StoredManifest, packs: [PackID: Pack])?>(nil)

    init(store: PackStore, catalogue: Catalogue) {
        self.store = store
        self.catalogue = catalogue
    }

    /// Returns the packs of the manifest that was accepted last, or `nil` if there is no readable one.
    func offers() throws(PackStoreError) -> [PackID: Pack]? {
        guard let (application, record) = try record() else { return nil }
        return known.withLock { known in
            if let known, known.record == record { return known.packs }
            // An unreadable manifest, or one of another application, counts as missing: the server is asked
            // again.
            guard let manifest = try? record.manifest(of: application) else { return nil }
            let packs = Dictionary(
                manifest.packs.map { ($0.id, $0) },
                uniquingKeysWith: { first, _ in first }
            )
            known = (record, packs)
            return packs
        }
    }

    /// Returns whether the manifest has the application's own format, which does not say which packs are
    /// obsolete.
    func hasOwnFormat() throws(PackStoreError) -> Bool {
        try record()?.value.customFormatApplication != nil
    }

    private func record() throws(PackStoreError) -> (key: ApplicationID, value: StoredManifest)? {
        let records = try store.storedManifests()
        return switch catalogue {
        case .application(let id): records[id].map { (id, $0) }
        case .manifest(let url): records.first { $0.value.url == url }
        }
    }

    /// Returns the offered packs, or `nil` if there is no manifest.
    func assetPacks() throws(PackStoreError) -> Set<AssetPack>? {
        guard let offers = try offers() else { return nil }
        var packs: Set<AssetPack> = []
        for pack in offers.values { packs.insert(try assetPack(pack)) }
        return packs
    }

    /// Returns the pack as offered, or `nil` if it is not offered.
    func offer(of id: PackID) throws(PackStoreError) -> AssetPack? {
        guard let pack = try offers()?[id] else { return nil }
        return try assetPack(pack)
    }

    /// Removes a pack, after the daemon's transfers were cancelled that earlier fetches have left to it and that would bring the
    /// pack again; returns `false` if there was nothing to remove or cancel.
    func remove(_ id: PackID) async throws -> Bool {
        // A pinned pack is not removed, so its transfers stay.
        let isPinned = try store.pin(of: id) != nil
        let isWithdrawn = isPinned ? false : await withdraw(id)
        // The worker of a cancelled transfer holds the pack until it has ended.
        let end = ContinuousClock.now + (isWithdrawn ? .seconds(15) : .zero)
        while true {
            let result = await attemptRemoval(of: id)
            if case .failure(.container(.busy)) = result, ContinuousClock.now < end {
                try await Task.sleep(for: .milliseconds(50))
                continue
            }
            return try result.get() || isWithdrawn
        }
    }

    private func attemptRemoval(of id: PackID) async -> Result<Bool, PackStoreError> {
        do throws(PackStoreError) {
            return .success(try await store.remove(id))
        } catch {
            return .failure(error)
        }
    }

    private func withdraw(_ id: PackID) async -> Bool {
        do throws(ControlError) {
            let client = try await ControlClient.discover(environment: ProcessEnvironment.current)
            let tasks = try await client.withdraw(id) { isMeant($0) }
            return !tasks.isEmpty
        } catch {
            // The removal does not depend on a daemon; where none answers, none brings the pack again.
            return false
        }
    }

    /// Returns whether an order of this user is for a container of the store.
    private func isMeant(_ order: StagingOrder) -> Bool {
        if let path = order.container { return store.containers.contains(FilePath(path)) }
        guard case .application(let id) = catalogue else { return false }
        return order.application == id.text
    }

    /// Returns the application's view of an offered pack.
    func assetPack(_ pack: Pack) throws(PackStoreError) -> AssetPack {
        let staged = try store.currentGeneration(of: pack.id)
        return AssetPack(pack, stagedVersion: staged?.content?.version)
    }
}
