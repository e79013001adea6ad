public import StageContainer
public import StageModel
import StageTransfer

/// Where a manifest is asked for, and what it must be.
public struct ManifestSource: Equatable, Sendable {
    /// The URLs, in order of preference.
    public var urls: [String]
    /// The application it must be for; `nil` takes any.
    public var application: ApplicationID?
    /// The version of the application that is installed; `nil` where it is not known.
    public var applicationVersion: String?
    /// The signed metadata that it is verified with; `nil` believes it for its transport.
    public var trust: TrustLedger?
    /// The application, of a manifest in a format of the application's own, which is not read here and offers no packs;
    /// `nil` for StagePack's format.
    public var ownFormatOf: ApplicationID?

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
        ownFormatOf = nil
    }
}

/// A manifest that was received, decoded and accepted, with the URL that its own URLs are relative to.
public struct AcceptedManifest: Equatable, Sendable {
    /// The manifest.
    public let manifest: Manifest
    /// What is kept of it in a container.
    public let record: StoredManifest
    /// Whether it is the one that was stored before.
    public let isUnchanged: Bool
    /// Whether signed metadata names it, so that it and what it names by digests may come over any
    /// transport.
    public let isSigned: Bool

    /// Takes a manifest that a container has stored, without asking its server.
    ///
    /// - Throws: ``StageError/manifestInvalid(url:_:)`` if what is stored is not a manifest.
    public init(stored record: StoredManifest) throws(StageError) {
        try self.init(record, isUnchanged: true)
    }

    /// Takes a manifest that a container has stored, in the place of one that the source does not give.
    ///
    /// - Parameters:
    ///   - record: The stored manifest.
    ///   - source: The source, with whose metadata it is verified if it has any.
    ///   - time: The time that the metadata must not have expired at, in seconds since 1970; `nil` without
    ///     regard to expiry, where nothing is fetched.
    /// - Throws: ``StageError/manifestInvalid(url:_:)``; ``StageError/manifestRefused(url:_:)`` if it is
    ///   not what the source must give; ``StageError/storedUntrusted(url:_:)`` if the stored metadata does
    ///   not name it; ``StageError/untrusted(url:_:)`` if that has expired.
    public init(
        stored record: StoredManifest,
        for source: ManifestSource,
        at time: Int64? = nil
    ) throws(StageError) {
        guard record.ownFormatOf == source.ownFormatOf else {
            throw .manifestInvalid(
                url: record.url,
                .notJSON("expected the format that the registration names, found another")
            )
        }
        try source.trust?.verify(record, from: source.urls, at: time)
        try self.init(record, isUnchanged: true, isSigned: source.trust != nil)
        try check(source, after: nil)
    }

    /// The revision of the manifest; `nil` of one in a format of the application's own, whose publisher counts in its own
    /// way.
    public var revision: Int? { record.ownFormatOf == nil ? manifest.revision : nil }

    /// Checks that the manifest does not go back behind one that was accepted before, from whatever
    /// URL.
    ///
    /// Manifests of which one is in a format of the application's own do not compare: the new one takes the place of the
    /// one before.
    ///
    /// - Throws: ``StageError/manifestRefused(url:_:)``.
    public func checkRevision(after record: StoredManifest?) throws(StageError) {
        // A stored manifest that cannot be read any more proves nothing.
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

    /// Checks that the manifest is the one that was asked for, and not older than `stored`.
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
            let url = (manifest.baseURLs + manifest.packs.flatMap(\.urls)).first(
                where: \.isLocal
            )
        {
            throw refused(.localContent(url: url))
        }
    }

    private func refused(_ refusal: ManifestRefusal) -> StageError {
        .manifestRefused(url: record.url, refusal)
    }
}

extension ManifestSource {
    /// Refuses URLs that no manifest is believed from.
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
    /// Asks for the manifest, and returns it if it is well formed and may be accepted.
    ///
    /// Where `stored` came from the same URL, the server is asked only whether it changed. With signed
    /// metadata of the source each URL stands for a repository, and what was verified is noted in
    /// ``ManifestSource/trust``, whose state the caller stores, also after an error.
    ///
    /// - Parameters:
    ///   - source: Where to ask, and what the manifest must be.
    ///   - stored: The manifest that was accepted before.
    ///   - report: Told what is waited for and which mirrors fail.
    /// - Returns: The manifest that holds from now on, the stored one if the server has no other.
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
        // A stored manifest that cannot be read any more, or has another format, is asked for anew.
        let stored = stored?.ownFormatOf == source.ownFormatOf ? stored : nil
        let before = stored.flatMap { try? AcceptedManifest(stored: $0) }
        var request = FetchRequest(mirrors: source.urls, limit: ByteCount(ManifestLimits.byteCount))
        request.needsTrust = true
        if before != nil, let stored, source.urls.contains(stored.url) {
            request.entityTag = stored.entityTag
        }
        request.report = { event in
            if let event = StagingEvent(event) { report(event) }
        }
        let accepted: AcceptedManifest
        switch try await fetch(request) {
        case .document(let document):
            // Text that was mended would not be what the publisher wrote.
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
                receivedAt: options.now(),
                text: text,
                ownFormatOf: source.ownFormatOf
            )
            guard ManifestTrust.isAcceptable(document.url) else {
                throw .manifestRefused(url: document.url.withoutUser, .insecure)
            }
            accepted = try AcceptedManifest(record, isUnchanged: record.text == stored?.text)
        case .notModified:
            guard let before else {
                throw .manifestUnavailable(.refused(url: source.urls.first ?? "", status: 304))
            }
            accepted = before
        }
        try accepted.check(source, after: before)
        return accepted
    }

    private func fetch(_ request: FetchRequest) async throws(StageError) -> FetchedContent {
        do throws(TransferError) {
            return try await engine.fetch(request)
        } catch {
            throw error == .cancelled ? .cancelled : .manifestUnavailable(error)
        }
    }
}

extension String {
    /// Whether it is an unencrypted URL.
    fileprivate var isPlainHTTP: Bool { URLReference(self).origin?.scheme == "http" }

    /// Whether it is the URL of a local file.
    fileprivate var isLocal: Bool { URLReference(self).schemeName == "file" }
}
