public import StageContainer
public import StageModel
import StageTransfer
public import StageTrust
import Synchronization

/// Signed metadata of one application in memory: the registered root, the stored metadata, and the results of
/// refreshes.
///
/// The stored metadata is verified from the root at each use. A refresh that ends with a manifest replaces all
/// of it; any other refresh adds new root metadata and drops metadata of rotated keys only, so that the stored
/// files always belong together.
public final class TrustLedger: Sendable {
    /// The root metadata that the application is registered with.
    let initialRoot: [UInt8]
    private let state: Mutex<StoredTrust>
    private let named: Mutex<ApplicationID?>

    /// Creates the ledger of an application.
    ///
    /// - Parameters:
    ///   - root: The bytes of the root metadata that the application is registered with.
    ///   - stored: The metadata that a container has stored.
    ///   - application: The application; `nil` if only the manifest names it.
    public init(
        root: [UInt8],
        stored: StoredTrust = StoredTrust(),
        application: ApplicationID? = nil
    ) {
        named = Mutex(application)
        initialRoot = root
        state = Mutex(stored)
    }

    /// The metadata to store.
    public var stored: StoredTrust { state.withLock { $0 } }

    /// The application; `nil` until a verified manifest names it.
    public var application: ApplicationID? { named.withLock { $0 } }

    func name(_ application: ApplicationID) { named.withLock { $0 = application } }

    /// Replaces the results of refreshes with the metadata that a container has stored.
    public func adopt(_ stored: StoredTrust) { replace(stored) }

    /// Returns whether `other` contains a later version of a role, valid under the newest root of both.
    ///
    /// Metadata signed by revoked keys is never later, even with a higher version.
    public func isOlder(than other: StoredTrust) -> Bool {
        let own = stored
        var all = own
        all.roots.merge(other.roots) { left, _ in left }
        guard let root = try? all.chain(from: initialRoot).bytes,
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
            // The next refresh drops metadata signed by revoked keys, and accepts lower versions then.
        }
    }

    /// Drops the metadata of roles whose keys were rotated.
    func remove(_ role: RoleName) {
        state.withLock { $0.files[role.fileName] = nil }
    }
}

extension TrustLedger: Equatable {
    /// Returns whether both are the same object.
    public static func == (left: TrustLedger, right: TrustLedger) -> Bool { left === right }
}

extension StoredTrust {
    /// Returns the chain of trusted roots that starts at the registered one.
    func chain(from initialRoot: [UInt8]) throws(TrustError) -> RootChain {
        try RootChain(from: initialRoot) { roots[$0] }
    }

    /// Returns the stored metadata of the top-level roles, for verification with a root.
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
    /// - Throws: `TrustError` if metadata that the search needs is missing or invalid, or if none names the
    ///   target.
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
    /// - Parameter time: The time at which the metadata must be unexpired; `nil` ignores expiry.
    /// - Returns: The metadata of all top-level roles.
    /// - Throws: `TrustError` for the first file that is missing or invalid.
    public func verified(at time: MetadataTime? = nil) throws(TrustError) -> TrustedMetadata {
        let stored = stored
        let root = try stored.chain(from: initialRoot).bytes
        return try TrustedMetadata(stored: stored.metadata(under: root), at: time)
    }

    /// Returns the newest trusted root metadata, independent of the state of the other roles.
    public func trustedRoot() throws(TrustError) -> RootMetadata {
        try stored.chain(from: initialRoot).root
    }

    /// Verifies that the stored metadata names a stored manifest.
    ///
    /// - Parameters:
    ///   - record: The stored manifest.
    ///   - urls: The URLs of the manifest; their file names are its possible target paths.
    ///   - time: The time at which the metadata must be unexpired, in seconds since 1970; `nil` ignores
    ///     expiry.
    /// - Throws: ``StageError/untrusted(url:_:)`` if the metadata has expired;
    ///   ``StageError/storedUntrusted(url:_:)`` for other failures.
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
