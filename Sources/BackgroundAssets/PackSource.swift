import Logging
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

    /// The offered packs at one time.
    struct Offers: Sendable {
        /// The packs of the manifest that was accepted last; `nil` if there is no readable one.
        var packs: [PackID: Pack]?
        /// Indicates whether the manifest has the application's own format, which does not say which packs are
        /// obsolete.
        var hasOwnFormat = false
    }

    /// The staged and the offered version of a pack at one time.
    struct PackState: Sendable {
        /// The staged generation; `nil` if there is none.
        var staged: GenerationName?
        /// The pack as offered; `nil` if it is not offered.
        var offer: AssetPack?
        /// All offered packs.
        var offers: Offers
        /// Indicates whether the staged version stays instead of the offered one; see
        /// ``PackSource/keepsStaged(insteadOf:)``.
        var isKept = false
    }

    private struct Known {
        var files = ManifestCache()
        var application: ApplicationID?
        var record: StoredManifest?
        /// The packs of the record, which may be thousands.
        var packs: [PackID: Pack]?
    }

    let store: PackStore
    private let catalogue: Catalogue
    /// The folders with the registrations of applications.
    private let registrations: [FilePath]
    /// The manifests as they were read last; only threads for blocking work wait for this lock.
    private let known = Mutex(Known())

    init(store: PackStore, catalogue: Catalogue, registrations: [FilePath]) {
        self.store = store
        self.catalogue = catalogue
        self.registrations = registrations
    }

    /// Returns the offered packs.
    ///
    /// Costs a status of each stored manifest; reads and decodes only those that have changed.
    func offers() async throws(PackStoreError) -> Offers {
        try await withBlockingThread { () throws(PackStoreError) -> Offers in
            try self.readOffers()
        }
    }

    /// Returns the application's view of the offered packs, or `nil` if there is no manifest.
    func assetPacks() async throws(PackStoreError) -> Set<AssetPack>? {
        try await withBlockingThread { () throws(PackStoreError) -> Set<AssetPack>? in
            guard let offers = try self.readOffers().packs else { return nil }
            var packs: Set<AssetPack> = []
            for pack in offers.values { packs.insert(try self.assetPack(pack)) }
            return packs
        }
    }

    /// Returns the offered packs that replace another staged version.
    func outdatedPacks() async throws(PackStoreError) -> [Pack] {
        try await withBlockingThread { () throws(PackStoreError) -> [Pack] in
            let offers = try self.readOffers().packs ?? [:]
            var packs: [Pack] = []
            for pack in offers.values {
                let staged = try self.store.currentGeneration(of: pack.id)
                if let staged, !staged.holds(pack) { packs.append(pack) }
            }
            let kept = try self.keptPacks(among: packs)
            return packs.filter { !kept.contains($0.id) }
        }
    }

    /// Returns whether the staged version of a pack stays although the application offers another one.
    ///
    /// It stays if it is newer and in a container that packs are not fetched into, or if another application of the group
    /// offers it and it is not older. A fetch of the pack would then change nothing.
    func keepsStaged(insteadOf pack: Pack) async throws(PackStoreError) -> Bool {
        try await withBlockingThread { () throws(PackStoreError) -> Bool in
            try !self.keptPacks(among: [pack]).isEmpty
        }
    }

    /// Returns the offered packs whose staged version stays.
    ///
    /// Reads the registrations and the manifests of the group only if the staged version of a pack is not older.
    private func keptPacks(among packs: [Pack]) throws(PackStoreError) -> Set<PackID> {
        var kept: Set<PackID> = []
        var present: [(pack: Pack, record: StagedPack)] = []
        for pack in packs {
            guard let record = try store.record(of: pack.id), record.version >= pack.version,
                !record.holds(pack)
            else { continue }
            let container = try store.container(of: pack.id)
            if record.version > pack.version, container != store.containers.first {
                kept.insert(pack.id)
            } else {
                present.append((pack, record))
            }
        }
        // The registration of the application determines which other applications count, as in runs.
        guard !present.isEmpty, case .application(let id) = catalogue,
            let own = RegistrationLocations.registration(of: id, in: registrations)
        else { return kept }
        let others = RegistrationLocations.applications(trustedAs: own, in: registrations)
        guard !others.isEmpty else { return kept }
        let manifests = try store.storedManifests().filter { others.contains($0.key) }
        // A manifest that cannot be read, or is one of another application, offers no packs.
        let offers = GroupOffers(manifests.compactMap { try? $0.value.manifest(of: $0.key) })
        for (pack, record) in present where offers.keeps(record, insteadOf: pack) {
            kept.insert(pack.id)
        }
        return kept
    }

    /// Returns the staged and the offered version of a pack.
    func state(of id: PackID) async throws(PackStoreError) -> PackState {
        try await withBlockingThread { () throws(PackStoreError) -> PackState in
            let offers = try self.readOffers()
            let staged = try self.store.currentGeneration(of: id)
            let pack = offers.packs?[id]
            var isKept = false
            if let pack, let staged, !staged.holds(pack) {
                isKept = try !self.keptPacks(among: [pack]).isEmpty
            }
            let offer = pack.map { AssetPack($0, stagedVersion: staged?.content?.version) }
            return PackState(staged: staged, offer: offer, offers: offers, isKept: isKept)
        }
    }

    private func readOffers() throws(PackStoreError) -> Offers {
        try known.withLock { known throws(PackStoreError) -> Offers in
            let records = try store.storedManifests(reusing: &known.files)
            guard let (application, record) = record(in: records) else { return Offers() }
            if known.record != record || known.application != application {
                known.application = application
                known.record = record
                // An unreadable manifest, or one of another application, counts as missing: the server is asked
                // again.
                known.packs = (try? record.manifest(of: application)).map { manifest in
                    Dictionary(
                        manifest.packs.map { ($0.id, $0) },
                        uniquingKeysWith: { first, _ in first }
                    )
                }
            }
            let hasOwnFormat = record.customFormatApplication != nil
            return Offers(packs: known.packs, hasOwnFormat: hasOwnFormat)
        }
    }

    /// Returns the record of the application's manifest.
    private func record(
        in records: [ApplicationID: StoredManifest]
    ) -> (key: ApplicationID, value: StoredManifest)? {
        switch catalogue {
        case .application(let id): records[id].map { (id, $0) }
        case .manifest(let url):
            records.filter { $0.value.url == url }.min { $0.key < $1.key }
        }
    }

    /// Cancels the daemon's transfers that would install the pack again, and removes the pack; returns `false` if there was
    /// nothing to remove or cancel.
    ///
    /// - Throws: `CancellationError` if the calling task is cancelled before the removal; the pack stays then.
    func remove(_ id: PackID) async throws -> Bool {
        // A pinned pack is not removed, so its transfers stay.
        let isPinned = try store.pin(of: id) != nil
        let isWithdrawn = isPinned ? false : await withdraw(id)
        try Task.checkCancellation()
        // The worker of a cancelled transfer holds the pack until it has ended.
        let limit = isWithdrawn ? Duration.seconds(15) : .zero
        do {
            let isRemoved = try await store.remove(id, waitingAtMost: limit)
            return isRemoved || isWithdrawn
        } catch {
            try Task.checkCancellation()
            throw error
        }
    }

    /// Cancels the daemon's transfers of the pack, and returns whether there were any; logs why some may continue.
    ///
    /// Without a daemon, no transfer can install the pack again. One that does not respond must not keep a user from freeing
    /// space.
    private func withdraw(_ id: PackID) async -> Bool {
        let withdrawal: PackWithdrawal
        do throws(ControlError) {
            let client = try await ControlClient.discover(environment: ProcessEnvironment.current)
            withdrawal = await client.withdraw(id) { usesContainer(of: $0) }
        } catch {
            withdrawal = PackWithdrawal(problem: error)
        }
        if let problem = withdrawal.problem, problem.mayHideTransfers {
            // The handler that the application has set, or else standard error.
            Logger(label: "stage-packs")
                .warning(
                    "The daemon may install the pack again: its transfers could not be cancelled",
                    metadata: ["pack.id": "\(id)", "error": "\(problem)"]
                )
        }
        return !withdrawal.cancelled.isEmpty
    }

    /// Returns whether a job of this user is for a container of the store.
    private func usesContainer(of job: StagingJob) -> Bool {
        if let path = job.container { return store.containers.contains(FilePath(path)) }
        guard case .application(let id) = catalogue else { return false }
        return job.application == id.text
    }

    /// Returns the application's view of an offered pack.
    func assetPack(_ pack: Pack) throws(PackStoreError) -> AssetPack {
        let staged = try store.currentGeneration(of: pack.id)
        return AssetPack(pack, stagedVersion: staged?.content?.version)
    }
}
