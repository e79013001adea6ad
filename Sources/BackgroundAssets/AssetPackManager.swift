import Foundation
import StageModel
import StagePack
import StageSystem
import Synchronization

/// The asset packs of an application, in the shape of Apple's Managed Background Assets.
///
/// Packs that the package's hook and the timers staged are available at once; others are downloaded on
/// request, by the `stagepack` command. All staged packs form one tree of files. Files that were read stay
/// valid until the process ends or calls ``remove(assetPackWithID:)``, even if new versions are published.
///
/// Set the configuration once, before the first use, in place of Apple's property list; without it, calls
/// throw ``ConfigurationError`` and nothing traps.
///
/// ```swift
/// AssetPackManager.shared.configuration = .init(application: "net.example.wallpaper")
/// let pack = try await AssetPackManager.shared.assetPack(withID: "aurora")
/// try await AssetPackManager.shared.ensureLocalAvailability(of: pack)
/// let data = try AssetPackManager.shared.contents(at: "images/one.png")
/// ```
///
/// Adds ``configuration`` and the initialiser to Apple's actor, and makes its members for languages
/// unavailable, because manifests have no languages. Includes members that Apple has deprecated, without
/// deprecation.
public actor AssetPackManager {
    /// The shared manager, which takes its ``configuration`` from the environment variable `STAGEPACK_APP`
    /// while none is set.
    public static let shared = AssetPackManager(
        nil,
        environment: ProcessEnvironment.current
    )

    /// The maximum number of simultaneous downloads; others are queued.
    private static let fetchLimit = 4

    private struct Setup {
        var configuration: Configuration?
        var source: PackSource?
    }

    private nonisolated let environment: [String: String]
    private nonisolated let setup: Mutex<Setup>
    nonisolated let updates = Broadcast<DownloadStatusUpdate>(
        buffering: 1024,
        haveSameSubject: { $0.assetPack.id == $1.assetPack.id },
        kind: { update in
            switch update {
            case .downloading: .progress
            case .paused: .state
            case .began, .finished, .failed: .step
            }
        }
    )
    private var downloads: [PackID: PackDownload] = [:]
    private var queue: [(download: PackDownload, source: PackSource)] = []
    private var fetching = 0

    /// Creates a manager for the packs of another application than that of ``shared``.
    ///
    /// - Parameters:
    ///   - configuration: The source of the packs.
    ///   - environment: The environment variables that locate the user's containers and registrations; `nil` for
    ///     those of the process.
    public init(configuration: Configuration, environment: [String: String]? = nil) {
        self.init(configuration, environment: environment ?? ProcessEnvironment.current)
    }

    init(_ configuration: Configuration?, environment: [String: String]) {
        self.environment = environment
        setup = Mutex(Setup(configuration: configuration))
    }

    /// The source of the packs; set it before the first use.
    ///
    /// Not a member of Apple's actor. An invalid configuration is reported by the calls that need it. After a change, URLs
    /// that the manager has returned may become invalid.
    public nonisolated var configuration: Configuration? {
        get { setup.withLock { $0.configuration } }
        set { setup.withLock { $0 = Setup(configuration: newValue) } }
    }

    /// Returns the resolved configuration.
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

    /// Ensures that a pack is available, and downloads it if it is not.
    ///
    /// For a staged pack this reads its link and uses no network. The previous version stays available until
    /// the new one is complete.
    ///
    /// - Parameters:
    ///   - assetPack: The pack.
    ///   - shouldUpdate: Whether the newest version is required: the server is asked for it, and the call
    ///     waits for its download. A version that another application of a registered application's group offers
    ///     suffices, if it is not older. With `false`, any version suffices.
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the server's manifest does not offer the
    ///   pack, and the download's error, also if only the stored manifest lacks the pack and the server does not respond;
    ///   with `shouldUpdate` also an error if the server does not respond; `CancellationError` if the calling task, or the
    ///   download, is cancelled.
    public func ensureLocalAvailability(
        of assetPack: AssetPack,
        requireLatestVersion shouldUpdate: Bool = false
    ) async throws {
        let source = try source()
        if shouldUpdate { try await source.store.refresh() }
        try await ensure(assetPack, isLatest: shouldUpdate, source: source) {
            try await source.offers().packs
        }
    }

    /// Ensures that packs are available; the failure of one does not stop the others.
    ///
    /// - Parameters:
    ///   - assetPacks: The packs.
    ///   - shouldUpdate: Whether the newest versions are required.
    /// - Throws: ``LocalAvailabilityError`` with the available packs and the errors of the others; `CancellationError` if the
    ///   calling task is cancelled.
    public func ensureLocalAvailability(
        of assetPacks: Set<AssetPack>,
        requireLatestVersions shouldUpdate: Bool = false
    ) async throws {
        let source = try source()
        var error = LocalAvailabilityError(successes: [], failures: [:])
        do {
            if shouldUpdate { try await source.store.refresh() }
            // Read once for all packs: parsing a manifest of thousands of packs takes time.
            let offers = try await source.offers().packs
            error = await outcome(
                of: assetPacks,
                isLatest: shouldUpdate,
                source: source,
                offers: offers
            )
        } catch let failure {
            for pack in assetPacks { error.failures[pack] = failure }
        }
        try Task.checkCancellation()
        guard error.failures.isEmpty else { throw error }
    }

    private func outcome(
        of assetPacks: Set<AssetPack>,
        isLatest: Bool,
        source: PackSource,
        offers: [PackID: Pack]?
    ) async -> LocalAvailabilityError {
        await withTaskGroup(of: (AssetPack, (any Error)?).self) { group in
            for pack in assetPacks {
                group.addTask {
                    do {
                        try await self.ensure(pack, isLatest: isLatest, source: source) { offers }
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
        source: PackSource,
        offers: @Sendable () async throws -> [PackID: Pack]?
    ) async throws {
        let id = try Self.packID(assetPack.id)
        while true {
            try await waitForCancelledDownload(id)
            // The URL holds a lease: the version cannot be removed from here on.
            if !isLatest, try source.store.localURL(for: id) != nil { return }
            let offered = try await offers()?[id]
            let offer = try offered.map { try source.assetPack($0) }
            // A download may have ended meanwhile.
            let isHere = try source.store.localURL(for: id) != nil
            if isHere, !isLatest { return }
            if isHere, let staged = try source.store.currentGeneration(of: id),
                offer?.isHeld(by: staged) ?? true
            {
                return
            }
            if isHere, let offered, try await source.keepsStaged(insteadOf: offered) { return }
            let download = download(id, pack: offer ?? assetPack, source: source)
            // A download that was cancelled just now would fail this caller, too.
            guard let key = download.join() else { continue }
            defer { forget(download) }
            return try await download.wait(key)
        }
    }

    /// Waits until a cancelled download of the pack, if there is one, has ended.
    ///
    /// - Throws: `CancellationError` if the calling task is cancelled.
    func waitForCancelledDownload(_ id: PackID) async throws {
        while let known = downloads[id], known.isCancelled {
            // The error is that of the cancelled download.
            try? await known.wait()
            try Task.checkCancellation()
            forget(known)
        }
    }

    /// Removes a download that has ended, or was cancelled in the queue.
    private func forget(_ download: PackDownload) {
        guard download.hasEnded else { return }
        if downloads[download.id] === download { downloads[download.id] = nil }
        queue.removeAll { $0.download === download }
    }

    /// Returns the running download of a pack, or a new one of its newest version.
    func download(
        _ id: PackID,
        pack assetPack: AssetPack,
        source: PackSource
    ) -> PackDownload {
        if let known = downloads[id], !known.hasEnded { return known }
        let download = PackDownload(id, assetPack: assetPack, updates: updates)
        downloads[id] = download
        queue.append((download, source))
        beginFetches()
        return download
    }

    /// Returns whether this process is downloading the pack.
    func isDownloading(_ id: PackID) -> Bool { downloads[id].map { !$0.hasEnded } ?? false }

    /// Cancels the download of a pack, waits until it ends, and returns whether there was one.
    ///
    /// - Throws: `CancellationError` if the calling task is cancelled; the download may still run then.
    func cancelDownload(_ id: PackID) async throws -> Bool {
        guard let download = downloads[id], !download.hasEnded else { return false }
        download.cancel()
        // The cancellation error is expected.
        try? await download.wait()
        forget(download)
        try Task.checkCancellation()
        return true
    }

    private func beginFetches() {
        while fetching < Self.fetchLimit, !queue.isEmpty {
            let (download, source) = queue.removeFirst()
            if download.begin({ Task { await self.fetch(download, from: source) } }) {
                fetching += 1
            }
        }
    }

    private func fetch(_ download: PackDownload, from source: PackSource) async {
        let updates = updates
        updates.send(.began(download.assetPack))
        var failure: (any Error)?
        do throws(PackStoreError) {
            _ = try await source.store.updatePack(download.id) { progress in
                for update in download.advance(to: progress) { updates.send(update) }
            }
        } catch {
            failure = Self.failure(error, of: download.id)
        }
        if failure == nil { download.completeProgress() }
        fetching -= 1
        if downloads[download.id] === download { downloads[download.id] = nil }
        beginFetches()
        let pack = download.assetPack
        updates.send(failure.map { .failed(pack, $0) } ?? .finished(pack))
        download.end(failure.map { .failure($0) } ?? .success(()))
    }

    /// Returns the error that the application gets for a failed download.
    private static func failure(_ error: PackStoreError, of id: PackID) -> any Error {
        switch error {
        case .cancelled: CancellationError()
        // A stored manifest without the pack does not show that the server's lacks it: the server may not have responded.
        case .fetchFailed(_, let failure) where failure.kind == .unknownPack:
            ManagedBackgroundAssetsError.assetPackNotFound(withID: id.text)
        default: error
        }
    }

    /// Returns the id of a pack; an invalid id means that the pack does not exist.
    static func packID(_ text: String) throws(ManagedBackgroundAssetsError) -> PackID {
        do throws(ValueError) {
            return try PackID(text)
        } catch {
            throw .assetPackNotFound(withID: text)
        }
    }
}

extension PackStore {
    /// Requests the manifest from the server.
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
