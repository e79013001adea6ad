public import StageContainer
public import StageModel
import StageTransfer
public import StageTrust
import Synchronization

/// The signed metadata of one application in memory: the root that it is registered with, what a container
/// has stored, and what refreshes add.
///
/// The stored part is verified from the root each time it is used. A refresh that ends with a manifest
/// replaces it as a whole; of any other only new root metadata stays, so that what is stored always
/// belongs together.
public final class TrustLedger: Sendable {
    /// The root metadata that the application is registered with.
    let shipped: [UInt8]
    private let state: Mutex<StoredTrust>
    private let named: Mutex<ApplicationID?>

    /// Creates the ledger of an application.
    ///
    /// - Parameters:
    ///   - root: The file of the root metadata that the application is registered with.
    ///   - stored: What a container has stored.
    ///   - application: The application; `nil` where only the manifest says which it is.
    public init(
        root: [UInt8],
        stored: StoredTrust = StoredTrust(),
        application: ApplicationID? = nil
    ) {
        named = Mutex(application)
        shipped = root
        state = Mutex(stored)
    }

    /// The metadata to store.
    public var stored: StoredTrust { state.withLock { $0 } }

    /// The application; `nil` until a verified manifest says which it is.
    public var application: ApplicationID? { named.withLock { $0 } }

    func name(_ application: ApplicationID) { named.withLock { $0 = application } }

    /// Takes what a container has stored in the place of what a refresh has verified.
    public func adopt(_ stored: StoredTrust) { replace(stored) }

    /// Whether a container has stored later metadata than this, which the same root verifies.
    ///
    /// Metadata that keys have signed which are no longer trusted is not later, whatever its version.
    public func isOlder(than other: StoredTrust) -> Bool {
        let own = stored
        var all = own
        all.roots.merge(other.roots) { left, _ in left }
        guard let root = try? all.chain(from: shipped).bytes,
            let later = try? TrustedMetadata(stored: other.metadata(under: root))
        else { return false }
        guard let metadata = try? TrustedMetadata(stored: own.metadata(under: root)) else {
            return true
        }
        return later.timestamp.version > metadata.timestamp.version
            || later.snapshot.version > metadata.snapshot.version
            || later.targets.version > metadata.targets.version
    }

    func replace(_ stored: StoredTrust) { state.withLock { $0 = stored } }

    func add(root bytes: [UInt8], version: Int) {
        state.withLock { state in
            guard state.roots[version] != bytes else { return }
            state.roots[version] = bytes
            // Metadata of keys that are no longer trusted, and of lower versions than they may have
            // given, is dropped by the refresh that reads it.
        }
    }

    /// Drops the metadata of roles whose keys were rotated.
    func remove(_ role: RoleName) {
        state.withLock { $0.files[role.fileName] = nil }
    }
}

extension TrustLedger: Equatable {
    /// Whether two ledgers are one.
    public static func == (left: TrustLedger, right: TrustLedger) -> Bool { left === right }
}

extension StoredTrust {
    /// The root metadata that is trusted from a registered one on.
    func chain(from shipped: [UInt8]) throws(TrustError) -> RootChain {
        try RootChain(from: shipped) { roots[$0] }
    }

    /// The stored metadata of top-level roles, under a root.
    func metadata(under root: [UInt8]) -> StoredMetadata {
        StoredMetadata(
            root: root,
            timestamp: files[RoleName.timestamp.fileName],
            snapshot: files[RoleName.snapshot.fileName],
            targets: files[RoleName.targets.fileName]
        )
    }

    /// Searches stored metadata for a target, without a repository.
    ///
    /// - Throws: ``TrustError`` if metadata that the search needs is missing or not valid, or none names
    ///   the target.
    func target(_ path: TargetPath, in metadata: TrustedMetadata) throws(TrustError) -> Target {
        var search = TargetSearch(for: path, in: metadata)
        while true {
            switch try search.next() {
            case .load(let role):
                if let bytes = files[role.fileName] {
                    search.accept(bytes)
                } else {
                    search.notFound()
                }
            case .fetch: search.notFound()
            case .store: continue
            case .found(let target): return target
            case .absent:
                throw .unnamed(target: path.text, version: metadata.targets.version)
            }
        }
    }
}

extension TrustLedger {
    /// Verifies the stored metadata.
    ///
    /// - Parameter time: The time that it must not have expired at; `nil` without regard to expiry.
    /// - Returns: The metadata of all top-level roles.
    /// - Throws: ``TrustError`` of the first file that is missing or not valid.
    public func verified(at time: MetadataTime? = nil) throws(TrustError) -> TrustedMetadata {
        let stored = stored
        let root = try stored.chain(from: shipped).bytes
        return try TrustedMetadata(stored: stored.metadata(under: root), at: time)
    }

    /// The last root metadata that is trusted, whatever the state of the other roles.
    public func trustedRoot() throws(TrustError) -> RootMetadata {
        try stored.chain(from: shipped).root
    }

    /// Verifies that the stored metadata names a stored manifest.
    ///
    /// - Parameters:
    ///   - record: The stored manifest.
    ///   - urls: The URLs that the manifest is asked for at, whose file names are those of the target.
    ///   - time: The time that the metadata must not have expired at, in seconds since 1970; `nil` without
    ///     regard to expiry.
    /// - Throws: ``StageError/untrusted(url:_:)`` if the metadata has expired, else
    ///   ``StageError/storedUntrusted(url:_:)``.
    public func verify(
        _ record: StoredManifest,
        from urls: [String],
        at time: Int64?
    ) throws(StageError) {
        do throws(TrustError) {
            try verify(record, from: urls, at: time.map(MetadataTime.init(secondsSince1970:)))
        } catch {
            if case .expired = error { throw .untrusted(url: record.url, error) }
            throw .storedUntrusted(url: record.url, error)
        }
    }

    private func verify(
        _ record: StoredManifest,
        from urls: [String],
        at time: MetadataTime?
    ) throws(TrustError) {
        let metadata = try verified(at: time)
        let content = Array(record.text.utf8)
        var failure = TrustError.unnamed(target: "", version: metadata.targets.version)
        for path in Set(urls.map { RepositoryAddress($0).target.text }).sorted() {
            do throws(TrustError) {
                return try stored.target(TargetPath(path), in: metadata).check(content)
            } catch {
                failure = error
            }
        }
        throw failure
    }
}
