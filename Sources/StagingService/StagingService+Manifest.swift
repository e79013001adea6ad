import Logging
import StageContainer
import StageEngine
import StageModel
import Synchronization
import SystemPackage

extension StagingService {
    /// Returns the server's manifest, or the stored one if the request is offline or the server does not
    /// answer.
    ///
    /// - Returns: The manifest, and the failure that led to the use of the stored one.
    /// - Throws: ``StagingFailure`` if no manifest is available, or if it is not accepted.
    func manifest(
        from source: ManifestSource,
        in reader: ContainerReader?,
        by stager: Stager
    ) async throws(StagingFailure) -> (AcceptedManifest, StagingFailure?) {
        let stored =
            try reader.map { reader throws(StagingFailure) in
                try target.stored(reader).first(where: source.isOrigin)
            } ?? nil
        if request.isOffline {
            guard let stored else { throw .offline("the manifest is not in the container") }
            return (try accepted(stored, for: source, at: nil), nil)
        }
        let asked = Mutex<(url: String?, failure: String?)>((nil, nil))
        do throws(StageError) {
            if let application = source.application { try target.checkRoot(of: application) }
        } catch {
            throw StagingFailure(error)
        }
        do throws(StageError) {
            let manifest = try await stager.manifest(from: source, stored: stored) { event in
                if case .connecting(let url) = event { asked.withLock { $0.url = url } }
                if case .mirrorFailed(_, let reason) = event {
                    asked.withLock { $0.failure = reason }
                }
                report(.manifest(event))
            }
            try checkRoot(of: manifest, from: source)
            if request.isDryRun, !manifest.isUnchanged {
                try checkRevision(of: manifest, from: source, reader)
            }
            return (manifest, nil)
        } catch {
            keepRoots(of: source, reader)
            let (url, lastFailure) = asked.withLock { $0 }
            let subject = url.map { StagingFailure.Subject.manifest(url: $0) }
            let failure: StagingFailure =
                error == .cancelled && isLate
                ? .deadline(about: subject, lastFailure: lastFailure)
                : .engine(error, about: subject)
            guard case .manifestUnavailable = error, let stored else { throw failure }
            // Checks the expiry: with expired metadata, which may be a replayed old copy, no new packs are
            // downloaded.
            let manifest = try accepted(stored, for: source, at: request.options.now())
            return (manifest, failure)
        }
    }

    /// Accepts a stored manifest, if it is valid for the source.
    func accepted(
        _ stored: StoredManifest,
        for source: ManifestSource,
        at time: Int64?
    ) throws(StagingFailure) -> AcceptedManifest {
        do throws(StageError) {
            let manifest = try AcceptedManifest(stored: stored, for: source, at: time)
            try checkRoot(of: manifest, from: source)
            return manifest
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Refuses a manifest that was verified with no root, or with another root than its container demands.
    private func checkRoot(
        of manifest: AcceptedManifest,
        from source: ManifestSource
    ) throws(StageError) {
        if source.trust == nil {
            try target.checkNeedsNoRoot(manifest.manifest)
        } else {
            try target.checkRoot(of: manifest.manifest.application)
        }
    }

    /// Refuses a manifest that is older than the stored one, from any URL, as storing it does.
    private func checkRevision(
        of manifest: AcceptedManifest,
        from source: ManifestSource,
        _ reader: ContainerReader?
    ) throws(StageError) {
        // The versions of signed metadata are checked instead.
        guard source.trust == nil else { return }
        var reader = reader
        if reader == nil, let path = try? target.container(for: manifest.manifest) {
            reader = try ContainerReader.reading(path)
        }
        let stored: StoredManifest?
        do throws(ContainerError) {
            stored = try reader?.storedManifest(for: manifest.manifest.application)
        } catch {
            throw .container(error)
        }
        try manifest.checkRevision(after: stored)
    }

    /// Stores the root metadata of a refresh that ended without a manifest, so that revoked keys stay
    /// revoked.
    private func keepRoots(of source: ManifestSource, _ reader: ContainerReader?) {
        guard let trust = source.trust, !request.isDryRun,
            let application = source.application ?? trust.application,
            let path = target.container(of: application),
            // Metadata from another root than the registered one is not the application's.
            (try? target.checkRoot(of: application)) != nil
        else { return }
        do throws(ContainerError) {
            guard try reader?.storedTrust(for: application) != trust.stored,
                !trust.stored.roots.isEmpty, let container = try Container.open(path)
            else { return }
            try container.store(trust.stored, for: application, unless: trust.isOlder)
        } catch {
            // The next refresh downloads it again.
            logger.warning(
                "New root metadata could not be stored",
                metadata: ["application.id": "\(application)", "error": "\(error)"]
            )
        }
    }
}

extension ManifestSource {
    /// Returns whether a stored manifest is the one that was accepted last from this source, whose URLs may have
    /// changed since if its application is known.
    fileprivate func isOrigin(of record: StoredManifest) -> Bool {
        // A manifest in another format than the source's is not.
        guard record.customFormatApplication == customFormatApplication else { return false }
        if urls.contains(record.url) { return true }
        guard application != nil else { return false }
        // Signed metadata names a manifest by the file name of its URL.
        guard let trust else { return true }
        return (try? trust.verify(record, from: urls, at: nil)) != nil
    }
}
