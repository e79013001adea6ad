import Foundation
import StageModel
import StagePack
public import StageSystem
import Synchronization

/// The asset packs of an application, in the shape of Apple's Managed Background Assets.
///
/// What the package's hook and timers staged is there at once; the rest is fetched when it is asked for, by
/// the `stagepack` command. All packs that are staged are one tree of files. What was read stays valid
/// until the process ends or ``remove(assetPackWithID:)``, whatever is published meanwhile.
///
/// Tell the manager once, before its first use, whose packs are meant, which Apple's property list says
/// there; without it, calls throw ``ConfigurationError`` and nothing traps.
///
/// ```swift
/// AssetPackManager.shared.configuration = .init(application: "net.example.wallpaper")
/// let pack = try await AssetPackManager.shared.assetPack(withID: "aurora")
/// try await AssetPackManager.shared.ensureLocalAvailability(of: pack)
/// let data = try AssetPackManager.shared.contents(at: "images/one.png")
/// ```
///
/// Differs from Apple's actor in ``configuration`` and the initialiser, and in what is refused when it is compiled: packs for
/// languages, because manifests know no languages. Members that Apple has deprecated are here and not deprecated.
public actor AssetPackManager {
    /// The manager of the application, which takes its ``configuration`` from `STAGEPACK_APP` in the
    /// environment as long as none is set.
    public static let shared = AssetPackManager(
        nil,
        environment: ProcessEnvironment.current
    )

    /// How many packs are fetched at once; the others wait their turn.
    private static let fetchLimit = 4

    private struct Setup {
        var configuration: Configuration?
        var source: PackSource?
    }

    private nonisolated let environment: [String: String]
    private nonisolated let setup: Mutex<Setup>
    nonisolated let updates = StatusBroadcast()
    private var downloads: [PackID: PackDownload] = [:]
    private var queue: [(download: PackDownload, source: PackSource)] = []
    private var fetching = 0

    /// Creates a manager of another application's packs than ``shared``'s.
    ///
    /// - Parameters:
    ///   - configuration: Whose packs are meant.
    ///   - environment: What containers and registrations of the user are found by.
    public init(
        configuration: Configuration,
        environment: [String: String] = ProcessEnvironment.current
    ) {
        self.init(configuration, environment: environment)
    }

    init(_ configuration: Configuration?, environment: [String: String]) {
        self.environment = environment
        setup = Mutex(Setup(configuration: configuration))
    }

    /// Whose packs are meant, to be set before the first use.
    ///
    /// Not of Apple's actor. One that cannot be used is an error of the calls that need one.
    public nonisolated var configuration: Configuration? {
        get { setup.withLock { $0.configuration } }
        set { setup.withLock { $0 = Setup(configuration: newValue) } }
    }

    /// What the configuration stands for.
    nonisolated func source() throws(ConfigurationError) -> PackSource {
        try setup.withLock { setup throws(ConfigurationError) in
            if let source = setup.source { return source }
            let named = environment["STAGEPACK_APP"].map { Configuration(application: $0) }
            guard let configuration = setup.configuration ?? named else { throw .missing }
            let source = try configuration.source(environment: environment)
            setup.source = source
            return source
        }
    }

    /// Ensures that a pack is here, and fetches it if it is not.
    ///
    /// A pack that is here costs a look at its link, and touches no network. The version that was here
    /// serves until the new one is whole.
    ///
    /// - Parameters:
    ///   - assetPack: The pack.
    ///   - shouldUpdate: Whether its newest version has to be here: the server is asked which that is, and
    ///     it is waited for. With `false`, any version will do.
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if no manifest offers the pack;
    ///   the failure of the fetch; with `shouldUpdate` also that the server does not answer.
    public func ensureLocalAvailability(
        of assetPack: AssetPack,
        requireLatestVersion shouldUpdate: Bool = false
    ) async throws {
        let source = try source()
        if shouldUpdate { try await source.store.refresh() }
        try await ensure(assetPack, isLatest: shouldUpdate, source, source.offers)
    }

    /// Ensures that packs are here; one that cannot be had stops no other.
    ///
    /// - Parameters:
    ///   - assetPacks: The packs.
    ///   - shouldUpdate: Whether their newest versions have to be here.
    /// - Throws: ``LocalAvailabilityError`` that tells the packs that are here from those that are not.
    public func ensureLocalAvailability(
        of assetPacks: Set<AssetPack>,
        requireLatestVersions shouldUpdate: Bool = false
    ) async throws {
        let source = try source()
        var error = LocalAvailabilityError(successes: [], failures: [:])
        do {
            if shouldUpdate { try await source.store.refresh() }
            // Once for all: reading a manifest of thousands of packs takes its time.
            let offers = try source.offers()
            error = await outcome(of: assetPacks, isLatest: shouldUpdate, source, offers)
        } catch let failure {
            for pack in assetPacks { error.failures[pack] = failure }
        }
        try Task.checkCancellation()
        guard error.failures.isEmpty else { throw error }
    }

    private func outcome(
        of assetPacks: Set<AssetPack>,
        isLatest: Bool,
        _ source: PackSource,
        _ offers: [PackID: Pack]?
    ) async -> LocalAvailabilityError {
        await withTaskGroup(of: (AssetPack, (any Error)?).self) { group in
            for pack in assetPacks {
                group.addTask {
                    do {
                        try await self.ensure(pack, isLatest: isLatest, source) { offers }
                        return (pack, nil)
                    } catch {
                        return (pack, error)
                    }
                }
            }
            var outcome = LocalAvailabilityError(successes: [], failures: [:])
            for await (pack, failure) in group {
                if let failure {
                    outcome.failures[pack] = failure
                } else {
                    outcome.successes.insert(pack)
                }
            }
            return outcome
        }
    }

    private func ensure(
        _ assetPack: AssetPack,
        isLatest: Bool,
        _ source: PackSource,
        _ offers: () throws -> [PackID: Pack]?
    ) async throws {
        let id = try Self.packID(assetPack.id)
        // The URL is that of a lease: from here on the version cannot go.
        let isHere = try source.store.localURL(for: id) != nil
        if isHere, !isLatest { return }
        let offer = try offers()?[id].map { try source.assetPack($0) }
        if isHere, let staged = try source.store.currentGeneration(of: id),
            offer?.isHeld(by: staged) ?? true
        {
            return
        }
        try await download(id, offer ?? assetPack, source, isKept: false).wait()
    }

    /// Fetches the newest version of a pack, or joins the fetch that there is.
    @discardableResult
    func download(
        _ id: PackID,
        _ assetPack: AssetPack,
        _ source: PackSource,
        isKept: Bool
    ) -> PackDownload {
        if let known = downloads[id], !known.hasEnded {
            if isKept { known.keep() }
            return known
        }
        let download = PackDownload(id, assetPack, isKept: isKept)
        downloads[id] = download
        queue.append((download, source))
        beginFetches()
        return download
    }

    /// Whether this process is fetching the pack.
    func isDownloading(_ id: PackID) -> Bool { downloads[id].map { !$0.hasEnded } ?? false }

    /// Cancels the fetch of a pack, if there is one, and waits for its end.
    func cancelDownload(_ id: PackID) async {
        guard let download = downloads[id] else { return }
        download.cancel()
        // It was cancelled, which is what is wanted.
        try? await download.wait()
    }

    private func beginFetches() {
        while fetching < Self.fetchLimit, !queue.isEmpty {
            let (download, source) = queue.removeFirst()
            if download.begin({ Task { await self.fetch(download, source) } }) {
                fetching += 1
            } else {
                updates.send(.failed(download.assetPack, CancellationError()))
            }
        }
    }

    private func fetch(_ download: PackDownload, _ source: PackSource) async {
        let updates = updates
        updates.send(.began(download.assetPack))
        var failure: (any Error)?
        do throws(PackStoreError) {
            _ = try await source.store.updatePack(download.id) { progress in
                updates.send(download.advance(to: progress))
            }
        } catch {
            failure = Self.failure(error, of: download.id, source)
        }
        fetching -= 1
        if downloads[download.id] === download { downloads[download.id] = nil }
        beginFetches()
        let pack = download.assetPack
        updates.send(failure.map { .failed(pack, $0) } ?? .finished(pack))
        download.end(failure.map { .failure($0) } ?? .success(()))
    }

    /// What a failed fetch means to the application.
    private static func failure(
        _ error: PackStoreError,
        of id: PackID,
        _ source: PackSource
    ) -> any Error {
        switch error {
        case .cancelled: return CancellationError()
        case .fetchFailed:
            // The fetch has asked for the manifest: if it is known, it is the one that has no such pack.
            if let offers = try? source.offers(), offers[id] == nil {
                return ManagedBackgroundAssetsError.assetPackNotFound(withID: id.text)
            }
            return error
        default: return error
        }
    }

    /// The name of a pack, as the manager's error where it can be none.
    static func packID(_ text: String) throws(ManagedBackgroundAssetsError) -> PackID {
        do throws(ValueError) {
            return try PackID(text)
        } catch {
            throw .assetPackNotFound(withID: text)
        }
    }
}

extension PackStore {
    /// Asks the server for the manifest.
    ///
    /// - Throws: ``PackStoreError``; `CancellationError`.
    func refresh() async throws {
        do throws(PackStoreError) {
            try await fetchManifest()
        } catch .cancelled {
            throw CancellationError()
        }
    }
}
