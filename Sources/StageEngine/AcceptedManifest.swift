public import StageContainer
public import StageModel
import StageTransfer
import Synchronization

/// Sources of a manifest, and the requirements that it must meet.
public struct ManifestSource: Equatable, Sendable {
    /// The URLs, in order of preference.
    public var urls: [String]
    /// The application that the manifest must be for; `nil` accepts any.
    public var application: ApplicationID?
    /// The installed version of the application; `nil` if unknown.
    public var applicationVersion: String?
    /// The signed metadata that verifies the manifest; `nil` to trust its transport instead.
    public var trust: TrustLedger?
    /// The application, if its manifest is in a format of its own, which StagePack does not read and which
    /// offers no packs; `nil` for StagePack's format.
    public var customFormatApplication: ApplicationID?

    /// Creates a source from its parts.
    public init(
        urls: [String],
        application: ApplicationID? = nil,
        applicationVersion: String? = nil,
        trust: TrustLedger? = nil
    ) {
        self.urls = urls
        self.application = application
        self.applicationVersion = applicationVersion
        self.trust = trust
        customFormatApplication = nil
    }
}

/// A manifest that was received, decoded and accepted, with the URL that its own URLs are relative to.
public struct AcceptedManifest: Equatable, Sendable {
    /// The manifest.
    public let manifest: Manifest
    /// The record that a container stores for the manifest.
    public let record: StoredManifest
    /// `true` if the manifest that was stored before, from one of the same URLs, has the same text, URL after redirects and
    /// entity tag, so that it need not be stored again.
    public let isUnchanged: Bool
    /// `true` if signed metadata names the manifest: it, and the content that it names by digest, may then use
    /// any transport.
    public let isSigned: Bool

    /// Creates the value from a manifest that a container has stored, without a request.
    ///
    /// - Throws: ``StageError/manifestInvalid(url:_:)`` if the stored text is not a manifest.
    public init(stored record: StoredManifest) throws(StageError) {
        try self.init(record, isUnchanged: true)
    }

    /// Creates the value from a stored manifest, for use when its source is unavailable.
    ///
    /// - Parameters:
    ///   - record: The stored manifest.
    ///   - source: The source; its metadata, if any, verifies the manifest.
    ///   - time: The time at which the metadata must be unexpired, in seconds since 1970; `nil` ignores
    ///     expiry, for callers that fetch nothing.
    /// - Throws: ``StageError/manifestInvalid(url:_:)``; ``StageError/manifestRefused(url:_:)`` if the
    ///   manifest does not meet the requirements of the source; ``StageError/storedUntrusted(url:_:)`` if the
    ///   stored metadata does not name it; ``StageError/untrusted(url:_:)`` if the metadata has expired.
    public init(
        stored record: StoredManifest,
        for source: ManifestSource,
        at time: Int64? = nil
    ) throws(StageError) {
        guard record.customFormatApplication == source.customFormatApplication else {
            throw .manifestInvalid(
                url: record.url,
                .notJSON("expected the format that the registration names, found another")
            )
        }
        try source.trust?.verify(record, from: source.urls, at: time)
        try self.init(record, isUnchanged: true, isSigned: source.trust != nil)
        try check(source, after: nil)
    }

    /// The revision of the manifest; `nil` for a format of the application's own, whose revisions StagePack
    /// does not know.
    public var revision: Int? { record.customFormatApplication == nil ? manifest.revision : nil }

    /// Checks that the revision is not lower than that of the manifest accepted before, from any URL.
    ///
    /// If either manifest is in a format of the application's own, the revisions do not compare, and the new
    /// manifest replaces the old one.
    ///
    /// - Throws: ``StageError/manifestRefused(url:_:)``.
    public func checkRevision(after record: StoredManifest?) throws(StageError) {
        // An unreadable stored manifest has no revision to compare with.
        try checkRevision(after: record.flatMap { try? AcceptedManifest(stored: $0) })
    }

    private func checkRevision(after stored: AcceptedManifest?) throws(StageError) {
        guard let stored, stored.manifest.application == manifest.application,
            let accepted = stored.revision, let offered = revision, accepted > offered
        else { return }
        throw refused(.wentBack(accepted: accepted, offered: offered))
    }

    init(
        _ record: StoredManifest,
        isUnchanged: Bool,
        isSigned: Bool = false
    ) throws(StageError) {
        do throws(ManifestError) {
            manifest = try record.manifest()
        } catch {
            throw .manifestInvalid(url: record.url, error)
        }
        self.record = record
        self.isUnchanged = isUnchanged
        self.isSigned = isSigned
    }

    /// Checks that the manifest meets the requirements of the source and is not older than `stored`.
    func check(_ source: ManifestSource, after stored: AcceptedManifest?) throws(StageError) {
        if let expected = source.application, expected != manifest.application {
            throw refused(.otherApplication(expected: expected, found: manifest.application))
        }
        if let installed = source.applicationVersion, let required = manifest.applicationVersion,
            !required.isMet(by: installed)
        {
            throw refused(.otherVersion(required: required.text, installed: installed))
        }
        try checkRevision(after: stored)
        if !record.resolvedURL.isLocal,
            let url = (manifest.baseURLs + manifest.packs.flatMap(\.objects).compactMap(\.url))
                .first(where: \.isLocal)
        {
            throw refused(.localContent(url: url))
        }
    }

    private func refused(_ refusal: ManifestRefusal) -> StageError {
        .manifestRefused(url: record.url, refusal)
    }
}

extension ManifestSource {
    /// Decodes a stored manifest; `nil` if it is unreadable, in another format or of another application than
    /// the source names.
    fileprivate func accepted(_ stored: StoredManifest) -> AcceptedManifest? {
        guard stored.customFormatApplication == customFormatApplication,
            let accepted = try? AcceptedManifest(stored: stored),
            application.map({ $0 == accepted.manifest.application }) ?? true
        else { return nil }
        return accepted
    }

    /// Throws if a URL is not acceptable as the source of a manifest.
    fileprivate func checkURLs() throws(StageError) {
        for url in urls where !ManifestTrust.isAcceptable(url, isSigned: trust != nil) {
            guard url.isPlainHTTP else {
                throw .manifestUnavailable(TransferError(unreadable: url))
            }
            throw .manifestRefused(url: url.withoutUser, .insecure)
        }
    }
}

extension Stager {
    /// Fetches the manifest, and checks that it is well formed and acceptable.
    ///
    /// If `stored` came from one of the URLs, the request to that URL is conditional on its entity tag. If the source has
    /// signed metadata, each URL is that of a repository, and the verified metadata is recorded in
    /// ``ManifestSource/trust``; the caller stores its state, also after an error.
    ///
    /// - Parameters:
    ///   - source: The URLs, and the requirements that the manifest must meet.
    ///   - stored: The manifest that was accepted before.
    ///   - report: Receives events about waiting and about mirrors that fail.
    /// - Returns: The manifest to use from now on: the stored one if the server has no other.
    /// - Throws: ``StageError`` of the first phase: `manifestUnavailable`, `manifestInvalid`,
    ///   `manifestRefused`, `untrusted`, `cancelled`.
    public func manifest(
        from source: ManifestSource,
        stored: StoredManifest? = nil,
        report: @escaping @Sendable (StagingEvent) -> Void = { _ in }
    ) async throws(StageError) -> AcceptedManifest {
        try source.checkURLs()
        if let trust = source.trust {
            let visits = RepositoryVisits(self, source: source, trust: trust, report: report)
            return try await visits.manifest(stored: stored)
        }
        // A stored manifest that is unreadable, in another format or of another application is replaced by a
        // request without a condition.
        let before = stored.flatMap(source.accepted)
        var request = FetchRequest(mirrors: source.urls, limit: ByteCount(ManifestLimits.byteCount))
        request.requiresTrustedTransport = true
        request.isRevalidated = true
        if let record = before?.record, source.urls.contains(record.url) {
            request.entityTag = record.entityTag
            request.entityTagURL = record.resolvedURL
        }
        request.report = { event in
            if let event = StagingEvent(event) { report(event) }
        }
        let acceptor = ManifestAcceptor(source, before: before, receivedAt: options.now())
        request.refusal = { acceptor.refusal(of: $0) }
        do throws(TransferError) {
            _ = try await engine.fetch(request)
        } catch .cancelled {
            throw .cancelled
        } catch {
            // A captive portal takes precedence, since the user can log in.
            if case .captivePortal = error { throw .manifestUnavailable(error) }
            throw acceptor.refusal ?? .manifestUnavailable(error)
        }
        guard let accepted = acceptor.accepted else {
            preconditionFailure("a fetch ends with a document that was accepted, or with an error")
        }
        return accepted
    }
}

/// Accepts or refuses the manifest of each mirror, and keeps the accepted one.
private final class ManifestAcceptor: Sendable {
    private struct State {
        var accepted: AcceptedManifest?
        var refusal: StageError?
    }

    private let source: ManifestSource
    private let before: AcceptedManifest?
    private let time: Int64
    private let state = Mutex(State())

    /// Creates an acceptor of manifests that replace the manifest `before`.
    init(_ source: ManifestSource, before: AcceptedManifest?, receivedAt time: Int64) {
        self.source = source
        self.before = before
        self.time = time
    }

    /// The manifest that was accepted last.
    var accepted: AcceptedManifest? { state.withLock { $0.accepted } }

    /// The reason why the first one was not accepted.
    var refusal: StageError? { state.withLock { $0.refusal } }

    /// Returns the reason why a mirror's manifest is not accepted; `nil` if it is.
    func refusal(of content: FetchedContent) -> String? {
        do throws(StageError) {
            let manifest = try manifest(in: content)
            try manifest.check(source, after: before)
            state.withLock { $0.accepted = manifest }
            return nil
        } catch {
            state.withLock { $0.refusal = $0.refusal ?? error }
            return error.manifestFault
        }
    }

    private func manifest(in content: FetchedContent) throws(StageError) -> AcceptedManifest {
        guard case .document(let document) = content else {
            guard let before else {
                throw .manifestUnavailable(.refused(url: source.urls.first ?? "", status: 304))
            }
            return before
        }
        // Repairing invalid UTF-8 would change the publisher's text.
        guard let text = String(validating: document.bytes, as: UTF8.self) else {
            throw .manifestInvalid(
                url: document.url,
                .notJSON("expected UTF-8, found other bytes")
            )
        }
        let record = StoredManifest(
            url: source.urls.first ?? document.url,
            resolvedURL: document.url,
            entityTag: document.entityTag,
            receivedAt: time,
            text: text,
            customFormatApplication: source.customFormatApplication
        )
        guard ManifestTrust.isAcceptable(document.url) else {
            throw .manifestRefused(url: document.url.withoutUser, .insecure)
        }
        // A manifest from another URL is stored again: the URLs in it are relative to its own URL. So is one with another
        // entity tag, by which the next request is conditional.
        let isUnchanged =
            before.map { before in
                source.urls.contains(before.record.url) && record.text == before.record.text
                    && record.resolvedURL == before.record.resolvedURL
                    && record.entityTag == before.record.entityTag
            } ?? false
        return try AcceptedManifest(record, isUnchanged: isUnchanged)
    }
}

extension StageError {
    /// The reason why a manifest is not accepted, without its URL.
    fileprivate var manifestFault: String {
        switch self {
        case .manifestInvalid(_, let error): "\(error)"
        case .manifestRefused(_, let refusal): "\(refusal)"
        default: "\(self)"
        }
    }
}

extension String {
    fileprivate var isPlainHTTP: Bool { URLReference(self).origin?.scheme == "http" }

    fileprivate var isLocal: Bool { URLReference(self).schemeName == "file" }
}
