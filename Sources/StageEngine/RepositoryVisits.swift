import Logging
import StageContainer
import StageModel
import StageSystem
import StageTransfer
import StageTrust
import SystemPackage

/// Visits the repositories of a manifest's URLs one after the other, until one provides an acceptable
/// manifest.
final class RepositoryVisits {
    private let stager: Stager
    private let source: ManifestSource
    private let trust: TrustLedger
    private let report: @Sendable (StagingEvent) -> Void
    private var failure: StageError?

    init(
        _ stager: Stager,
        source: ManifestSource,
        trust: TrustLedger,
        report: @escaping @Sendable (StagingEvent) -> Void
    ) {
        self.stager = stager
        self.source = source
        self.trust = trust
        self.report = report
    }

    /// Returns the manifest of the first repository that provides an acceptable one.
    ///
    /// - Throws: ``StageError/untrusted(url:_:)`` if a repository is not trusted and none provides a manifest;
    ///   otherwise the error of the last repository, or the first error that other repositories cannot help
    ///   with.
    func manifest(stored: StoredManifest?) async throws(StageError) -> AcceptedManifest {
        // Read once, so that expiry in all repositories is checked against the same time.
        let time = MetadataTime(secondsSince1970: stager.options.now())
        // A stored manifest that the stored metadata does not name is fetched again, and one from another URL,
        // since its own URLs are relative to that one.
        let before = stored.flatMap { record in
            source.urls.contains(record.url)
                ? try? AcceptedManifest(stored: record, for: source) : nil
        }
        let metadataBefore = trust.stored
        var mirrors = source.urls
        for isTriedOnce in mirrors.count > 1 ? [true, false] : [false] {
            var unavailable: [String] = []
            for url in mirrors {
                let visit = RepositoryVisit(
                    stager,
                    url: url,
                    firstURL: source.urls.first ?? url,
                    trust: trust,
                    time: time
                )
                visit.customFormatApplication = source.customFormatApplication
                visit.isTriedOnce = isTriedOnce
                visit.metadataBefore = metadataBefore
                visit.report = report
                do throws(StageError) {
                    return try await visit.manifest(for: source, before: before)
                } catch {
                    try note(error, of: url)
                    if case .manifestUnavailable = error { unavailable.append(url) }
                }
            }
            mirrors = unavailable
        }
        throw failure ?? .manifestUnavailable(.unacceptable(url: "", .noMirror))
    }

    /// Records an error, where `untrusted` takes precedence, or throws an error that other repositories cannot
    /// help with.
    private func note(_ error: StageError, of url: String) throws(StageError) {
        switch error {
        case .untrusted(_, let reason):
            report(.mirrorFailed(url: url, reason: reason.description))
            if case .untrusted = failure { return }
            failure = error
        case .manifestUnavailable(let reason):
            report(.mirrorFailed(url: url, reason: reason.description))
            if case .untrusted = failure { return }
            failure = error
        default: throw error
        }
    }
}

/// A visit to one repository: refreshes the metadata, finds the manifest in it, and fetches the manifest.
private final class RepositoryVisit {
    private let stager: Stager
    private let address: RepositoryAddress
    private let url: String
    private let firstURL: String
    private let trust: TrustLedger
    private let time: MetadataTime
    /// The state to store if the visit ends with a manifest.
    private var state: StoredTrust
    private var refresh: MetadataRefresh?
    private var search: TargetSearch?
    private var trusted: TrustedMetadata?
    private var target: Target?
    private var rootVersion = 0
    private var entityTag: String?
    /// `true` if the stored timestamp carries valid signatures of the current root.
    private var holdsValidTimestamp = false
    /// The state that was stored before any repository was visited.
    var metadataBefore = StoredTrust()
    var isTriedOnce = false
    /// The application, if its manifest is in a format of its own; `nil` for StagePack's format.
    var customFormatApplication: ApplicationID?
    var report: @Sendable (StagingEvent) -> Void = { _ in }

    init(
        _ stager: Stager,
        url: String,
        firstURL: String,
        trust: TrustLedger,
        time: MetadataTime
    ) {
        self.stager = stager
        self.url = url
        self.firstURL = firstURL
        self.trust = trust
        self.time = time
        address = RepositoryAddress(url)
        state = trust.stored
    }

    /// Refreshes the metadata, and returns the manifest that it names.
    func manifest(
        for source: ManifestSource,
        before: AcceptedManifest?
    ) async throws(StageError) -> AcceptedManifest {
        try trusting { () throws(TrustError) in
            let chain = try state.chain(from: trust.initialRoot)
            let stored = state.metadata(under: chain.bytes)
            rootVersion = chain.root.version
            // A conditional request with the tag of a damaged timestamp would get 304 forever.
            holdsValidTimestamp = (try? TrustedMetadata(stored: stored)) != nil
            refresh = try MetadataRefresh(from: stored, at: time)
        }
        while let file = try trusting({ () throws(TrustError) in try nextFile() }) {
            let bytes = try await fetch(file)
            if trusted != nil {
                search?.take(bytes)
            } else if let bytes {
                refresh?.accept(bytes)
            } else {
                refresh?.notFound()
            }
        }
        guard let target else { preconditionFailure("a search ends with a target or an error") }
        let accepted = try await manifest(for: target, previous: before)
        trust.name(accepted.manifest.application)
        try accepted.check(
            source,
            after: before.flatMap { isStillSigned($0, from: source) ? $0 : nil }
        )
        noteRefresh()
        trust.replace(state)
        return accepted
    }

    /// Returns whether the keys of the newest root have signed a manifest from before.
    ///
    /// Revoked keys may have signed any revision, so such a manifest is ignored together with their metadata
    /// (The Update Framework, 5.3.11).
    private func isStillSigned(_ before: AcceptedManifest, from source: ManifestSource) -> Bool {
        var metadata = metadataBefore
        metadata.roots = state.roots
        let ledger = TrustLedger(root: trust.initialRoot, stored: metadata)
        return (try? ledger.verify(before.record, from: source.urls, at: nil)) != nil
    }

    private func trusting<Value>(
        _ body: () throws(TrustError) -> Value
    ) throws(StageError) -> Value {
        do throws(TrustError) {
            return try body()
        } catch {
            throw .untrusted(url: url, error)
        }
    }

    /// Records the time of verification, and the time when each metadata file was received.
    private func noteRefresh() {
        let now = time.secondsSince1970
        let before = trust.stored
        var receivedAt: [String: Int64] = [:]
        for (name, bytes) in state.files {
            let known = before.files[name] == bytes ? before.record?.receivedAt[name] : now
            receivedAt[name] = known
        }
        let root = RoleName.root.fileName
        receivedAt[root] = before.roots == state.roots ? before.record?.receivedAt[root] : now
        state.record = TrustRecord(
            url: address.url(ofMetadata: RoleName.timestamp.fileName),
            entityTag: entityTag,
            verifiedAt: now,
            receivedAt: receivedAt
        )
        // For commands that name no root, and only show the state.
        if let version = try? RootMetadata(trusted: trust.initialRoot).version {
            state.roots[version] = trust.initialRoot
        }
    }
}

// MARK: Metadata

extension RepositoryVisit {
    /// Advances to the next file to fetch from the repository; returns `nil` at the end.
    private func nextFile() throws(TrustError) -> MetadataFile? {
        if trusted == nil, let file = try nextFileOfRefresh() { return file }
        return try nextFileOfSearch()
    }

    private func nextFileOfRefresh() throws(TrustError) -> MetadataFile? {
        while true {
            switch try refresh?.next() {
            case .fetch(let file): return file
            case .store(.root, let bytes):
                rootVersion += 1
                holdsValidTimestamp = false
                state.roots[rootVersion] = bytes
                // Revoked keys stay revoked even if the visit fails.
                trust.add(root: bytes, version: rootVersion)
            case .store(let role, let bytes): state.files[role.fileName] = bytes
            case .remove(let role):
                state.files[role.fileName] = nil
                trust.remove(role)
            case .done(let metadata):
                trusted = metadata
                search = TargetSearch(for: address.target, in: metadata)
                return nil
            case nil: return nil
            }
        }
    }

    private func nextFileOfSearch() throws(TrustError) -> MetadataFile? {
        while true {
            switch try search?.next() {
            case .load(let role): search?.take(state.files[role.fileName])
            case .fetch(let file): return file
            case .store(let role, let bytes): state.files[role.fileName] = bytes
            case .found(let target):
                self.target = target
                return nil
            case .absent, nil:
                throw .unnamed(
                    target: address.target.text,
                    version: trusted?.targets.version ?? 0
                )
            }
        }
    }

    /// Fetches a metadata file; returns `nil` if the repository does not have this root metadata.
    private func fetch(_ file: MetadataFile) async throws(StageError) -> [UInt8]? {
        let url = address.url(ofMetadata: file.path)
        var request = request(for: url, limit: file.maximumLength)
        let known = state.files[file.role.fileName]
        if file.role == .timestamp, holdsValidTimestamp, state.record?.url == url {
            request.entityTag = state.record?.entityTag
        }
        do throws(TransferError) {
            switch try await stager.engine.fetch(request) {
            case .document(let document):
                if file.role == .timestamp { entityTag = document.entityTag }
                return document.bytes
            case .notModified:
                entityTag = state.record?.entityTag
                return known
            }
        } catch {
            if file.role == .root, error.isAbsence { return nil }
            throw stageError(error, of: file.path, describedBy: nil)
        }
    }

    private func request(for url: String, limit: ByteCount) -> FetchRequest {
        var request = FetchRequest(mirrors: [url], limit: limit)
        request.allowsPlainRedirects = true
        request.isRevalidated = true
        request.isTriedOnce = isTriedOnce
        request.report = { [report] event in
            // A missing newer root is not a failure; the caller reports other failures at the end of the
            // visit.
            if case .mirrorFailed = event { return }
            if let event = StagingEvent(event) { report(event) }
        }
        return request
    }

    private func stageError(
        _ error: TransferError,
        of name: String,
        describedBy metadata: MetadataVersion?
    ) -> StageError {
        switch error {
        case .cancelled: .cancelled
        case .unacceptable(_, .size(let limit)):
            .untrusted(
                url: url,
                .wrongContent(name, .tooLong(limit: limit, found: nil), describedBy: metadata)
            )
        default: .manifestUnavailable(error)
        }
    }
}

// MARK: The manifest

extension RepositoryVisit {
    /// Returns the manifest that signed metadata describes: the previous one if it matches, otherwise that of
    /// the repository.
    private func manifest(
        for target: Target,
        previous: AcceptedManifest?
    ) async throws(StageError) -> AcceptedManifest {
        if let previous, (try? target.check(Array(previous.record.text.utf8))) != nil {
            return previous
        }
        let limit = min(target.length, ByteCount(ManifestLimits.byteCount))
        let location = address.url(ofTarget: target.location)
        let document: FetchedDocument
        do throws(TransferError) {
            let request = request(for: location, limit: limit)
            guard case .document(let found) = try await stager.engine.fetch(request) else {
                preconditionFailure("an unconditional request is answered with a document")
            }
            document = found
        } catch {
            throw stageError(
                error,
                of: target.path.text,
                describedBy: MetadataVersion(role: target.role, version: target.version)
            )
        }
        try trusting { () throws(TrustError) in try target.check(document.bytes) }
        // Repairing invalid UTF-8 would change the publisher's text.
        guard let text = String(validating: document.bytes, as: UTF8.self) else {
            throw .manifestInvalid(
                url: document.url,
                .notJSON("expected UTF-8, found other bytes")
            )
        }
        let record = StoredManifest(
            url: firstURL,
            resolvedURL: document.url,
            entityTag: nil,
            receivedAt: time.secondsSince1970,
            text: text,
            customFormatApplication: customFormatApplication
        )
        return try AcceptedManifest(record, isUnchanged: false, isSigned: true)
    }
}

extension TargetSearch {
    /// Passes on the bytes of the requested file, or its absence.
    fileprivate mutating func take(_ bytes: [UInt8]?) {
        if let bytes { accept(bytes) } else { notFound() }
    }
}

extension TransferError {
    /// `true` if the server reports that the file does not exist; object stores also do so with 403.
    fileprivate var isAbsence: Bool {
        switch self {
        case .refused(_, let status, _): status == 404 || status == 403
        case .unacceptable(_, .file(let error)): error.errno == .noSuchFileOrDirectory
        default: false
        }
    }
}
