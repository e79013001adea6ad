import Logging
import StageContainer
import StageEngine
import StageModel
import StageSystem
import SystemPackage

extension StagingService {
    /// The container of a run, and its state when the run begins.
    struct RunStart {
        var container: Container
        /// The manifest in effect.
        var manifest: AcceptedManifest
        var planner: Planner
        /// The history before the run.
        var history: HistoryRecord?
        /// The events that the run is to complete and that lack packs.
        var incomplete: Set<ContentRequest>
    }

    /// Ends a run whose registration has been changed or removed since it was read.
    func checkRegistration() throws(StagingFailure) {
        guard target.isObsolete, let registration = target.registration else { return }
        throw .registrationChanged(registration.application)
    }

    /// Opens or creates the container, records which events are incomplete, and stores the manifest.
    ///
    /// In this order, so that a later run completes the events of one that is killed, or that finds no space for
    /// the manifest.
    func begin(
        with offered: AcceptedManifest,
        from source: ManifestSource,
        at path: FilePath,
        under restrictions: Registration.Restrictions?
    ) async throws(StagingFailure) -> RunStart {
        let container = try makeContainer(path)
        var (planner, history) =
            try planner(for: offered, in: container, at: path, under: restrictions)
        var incomplete = planner.incomplete(planner.events(of: selection(planner)))
        note(incomplete, of: offered, after: history, in: container)
        let manifest = try await store(offered, in: container, from: source)
        if manifest.record != offered.record {
            (planner, history) =
                try self.planner(for: manifest, in: container, at: path, under: restrictions)
            incomplete = planner.incomplete(planner.events(of: selection(planner)))
            note(incomplete, of: manifest, after: history, in: container)
        }
        return RunStart(
            container: container,
            manifest: manifest,
            planner: planner,
            history: history,
            incomplete: incomplete
        )
    }

    /// Writes the history of a run.
    func record(
        _ result: StagingResult,
        of selection: PackSelection,
        by planner: Planner,
        after start: RunStart
    ) {
        RunRecorder(self, in: start.container).record(
            result,
            of: selection,
            by: planner,
            after: start.history,
            incomplete: start.incomplete
        )
    }

    /// Records durably that events are incomplete; writes nothing if the history has them.
    ///
    /// Waits at most a second for the lock of the history, which any process of the container's owner can hold.
    func note(
        _ events: Set<ContentRequest>,
        of manifest: AcceptedManifest,
        after history: HistoryRecord?,
        in container: Container
    ) {
        guard !events.isSubset(of: history?.history?.pending ?? []) else { return }
        do throws(ContainerError) {
            try RunRecorder(self, in: container).note(
                events,
                of: manifest.manifest.application,
                after: history
            )
        } catch {
            // The run continues, and records the missing events at its end.
            logger.info(
                "Incomplete events cannot be recorded in the history",
                metadata: ["error": "\(error)"]
            )
        }
    }

    /// Opens the container, or creates it.
    func makeContainer(_ path: FilePath) throws(StagingFailure) -> Container {
        do throws(ContainerError) {
            return try Container.make(path)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Refuses the directory of a dry run whose files ``makeContainer(_:)`` would refuse.
    func checkContainer(_ path: FilePath) throws(StagingFailure) {
        do throws(ContainerError) {
            try Container.checkForOtherFiles(at: path)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Stores the manifest in a container, with its verified metadata.
    ///
    /// Waits while other processes store theirs, until the task is cancelled.
    ///
    /// - Returns: The manifest in effect: a newer one if another process has stored it.
    func store(
        _ manifest: AcceptedManifest,
        in container: Container,
        from source: ManifestSource
    ) async throws(StagingFailure) -> AcceptedManifest {
        var newer: StoredManifest?
        while true {
            do throws(ContainerError) {
                newer = try storeOnce(manifest, in: container, from: source)
                break
            } catch {
                guard error.isHeldByOthers else { throw StagingFailure(error) }
                if Task.isCancelled { throw StagingFailure(StageError.cancelled) }
            }
            await Task.yield()
        }
        guard let newer else { return manifest }
        guard source.trust == nil else {
            // Another process has stored a newer manifest meanwhile.
            return try accepted(newer, for: source, at: nil)
        }
        do throws(StageError) {
            try manifest.checkRevision(after: newer)
        } catch {
            throw StagingFailure(error)
        }
        return manifest
    }

    /// Stores the manifest; waits some seconds while another process stores one.
    ///
    /// - Returns: The manifest that another process has stored meanwhile, if it is newer.
    private func storeOnce(
        _ manifest: AcceptedManifest,
        in container: Container,
        from source: ManifestSource
    ) throws(ContainerError) -> StoredManifest? {
        let application = manifest.manifest.application
        guard let trust = source.trust else {
            try container.removeTrust(of: application)
            guard !manifest.isUnchanged else { return nil }
            return try container.store(manifest.record, for: application) { stored in
                // The caller throws the error, outside the lock.
                (try? manifest.checkRevision(after: stored)) == nil
            }
        }
        let metadata = try container.store(
            trust.stored,
            and: manifest.isUnchanged ? nil : manifest.record,
            for: application,
            unless: trust.isOlder
        )
        guard let metadata else { return nil }
        trust.adopt(metadata)
        return try container.storedManifest(for: application) ?? manifest.record
    }
}

extension ContainerError {
    /// True if another process holds the lock that the operation has waited for.
    var isHeldByOthers: Bool {
        if case .file(let error) = self { error.isHeldByOthers } else { false }
    }
}
