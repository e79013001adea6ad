import StageContainer
import StageModel
import StagePack
import Synchronization

/// The packs of one application: what its manifest offers, and what is staged of it.
final class PackSource: Sendable {
    /// Which of a container's manifests is the application's.
    enum Catalogue: Sendable {
        case application(ApplicationID)
        case manifest(url: String)
    }

    let store: PackStore
    private let catalogue: Catalogue
    /// The manifest that was read last: one may have thousands of packs.
    private let known = Mutex<(record: StoredManifest, packs: [PackID: Pack])?>(nil)

    init(store: PackStore, catalogue: Catalogue) {
        self.store = store
        self.catalogue = catalogue
    }

    /// Returns what the manifest that was accepted last offers, or `nil` if there is none that can be
    /// read.
    func offers() throws(PackStoreError) -> [PackID: Pack]? {
        guard let record = try record() else { return nil }
        return known.withLock { known in
            if let known, known.record == record { return known.packs }
            // One that cannot be read is as good as none: the server is asked anew.
            guard let manifest = try? record.manifest() else { return nil }
            let packs = Dictionary(
                manifest.packs.map { ($0.id, $0) },
                uniquingKeysWith: { first, _ in first }
            )
            known = (record, packs)
            return packs
        }
    }

    /// Returns whether the manifest is in a format of the application's own, which does not say which packs are obsolete.
    func hasOwnFormat() throws(PackStoreError) -> Bool { try record()?.ownFormatOf != nil }

    private func record() throws(PackStoreError) -> StoredManifest? {
        let records = try store.storedManifests()
        return switch catalogue {
        case .application(let id): records[id]
        case .manifest(let url): records.values.first { $0.url == url }
        }
    }

    /// Returns the packs that are offered, or `nil` if there is no manifest.
    func assetPacks() throws(PackStoreError) -> Set<AssetPack>? {
        guard let offers = try offers() else { return nil }
        var packs: Set<AssetPack> = []
        for pack in offers.values { packs.insert(try assetPack(pack)) }
        return packs
    }

    /// Returns the pack as it is offered, or `nil` if it is not.
    func offer(of id: PackID) throws(PackStoreError) -> AssetPack? {
        guard let pack = try offers()?[id] else { return nil }
        return try assetPack(pack)
    }

    /// Returns what the application sees of a pack that is offered.
    func assetPack(_ pack: Pack) throws(PackStoreError) -> AssetPack {
        let staged = try store.currentGeneration(of: pack.id)
        return AssetPack(pack, stagedVersion: staged?.content?.version)
    }
}
