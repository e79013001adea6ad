import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StagingService
import SystemPackage

/// The manifests, staged packs and records of runs that `doctor` reads in the containers of a scope.
struct PackCheck {
    let scope: ContainerScope
    /// The manifests, in the order of their applications.
    let records: [AcceptedRecord]
    /// The conflicts between these manifests and others of the group.
    let conflicts: [OfferConflict]
    /// The packs that the first launch waits for and that are not staged, by application.
    private(set) var missing: [ApplicationID: [Pack]] = [:]
    /// The records of runs, with the paths of their containers.
    private(set) var histories: [(container: FilePath, ApplicationID, StagingHistory)] = []
    private let view: ContainerView

    init(
        _ scope: ContainerScope,
        in view: ContainerView,
        registrations folders: RegistrationFolders
    ) throws(CommandFailure) {
        self.scope = scope
        self.view = view
        let stored = try scope.storedManifests(view)
        records = scope.selected(stored)
        conflicts = scope.conflicts(among: stored)
        do throws(ContainerError) {
            try readHistories()
            try findMissing(folders)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns the space that the missing packs need in a container, and whether the next runs find as much.
    ///
    /// Counts what interrupted runs have left, and evictions, as runs do.
    func compareSpace(in container: ContainerReader) -> SpaceComparison {
        var comparison = SpaceComparison()
        for record in records {
            let ids = missingPacks(of: record).map(\.id)
            guard !ids.isEmpty,
                // A manifest that cannot be read has no missing packs; another finding reports such a container.
                let manifest = try? record.manifest.get(),
                var planner = try? Planner(manifest: manifest, containerAt: container.root.path)
            else { continue }
            // The packs of other applications take their space before.
            planner.freeSpace = planner.freeSpace.map { $0 - comparison.needed }
            planner.freeInodes = planner.freeInodes.map { $0 - comparison.neededInodes }
            guard let packs = try? planner.compareSpace(for: .packs(Set(ids)), in: container)
            else { continue }
            comparison.add(packs)
        }
        return comparison
    }

    /// Returns the missing packs of a manifest that the next run stages or tries to stage.
    ///
    /// Leaves out those that it refuses for the quota, as the run before: the finding about that failure names them.
    func missingPacks(of record: AcceptedRecord) -> [Pack] {
        let packs = missing[record.application] ?? []
        // A manifest that cannot be read has no missing packs.
        guard let manifest = try? record.manifest.get() else { return packs }
        let refused = histories.filter { $0.1 == record.application }
            .flatMap { $0.2.packs }.filter { $0.reason == .exceedsQuota }.map(\.id)
        let ids = Set(refused).intersection(packs.map(\.id))
        guard !ids.isEmpty, let path = scope.own,
            let reader = try? ContainerReader.open(path),
            var planner = try? Planner(manifest: manifest, containerAt: path)
        else { return packs }
        planner.quota = scope.session.target.quota(of: path)
        // Another finding reports a container that cannot be read.
        guard let plan = try? planner.plan(for: .packs(ids), in: reader) else { return packs }
        let beyond = plan.entries.filter { entry in
            if case .refuse(.exceedsQuota) = entry.decision { true } else { false }
        }
        let out = Set(beyond.map(\.pack.id))
        return packs.filter { !out.contains($0.id) }
    }

    /// Returns the copy of a pack that readers use.
    func copy(of id: PackID) -> ContainerView.Copy? {
        // Another finding reports a container that cannot be read.
        (try? view.copies(of: id))?.first
    }

    /// The latest time in the containers' records; `nil` if there are none.
    var latestRecord: Int64? {
        let times =
            records.map(\.record.receivedAt) + histories.compactMap { $0.2.lastRun?.endedAt }
        return times.max()
    }

    private mutating func readHistories() throws(ContainerError) {
        let only = scope.session.target.registration?.application
        for (path, reader) in zip(view.containers, view.readers) {
            guard let reader else { continue }
            for id in try reader.applicationsWithHistory() where only == nil || only == id {
                guard let history = try reader.history(of: id) else { continue }
                histories.append((path, id, history))
            }
        }
    }

    private mutating func findMissing(_ folders: RegistrationFolders) throws(ContainerError) {
        for record in records {
            guard let manifest = try? record.manifest.get() else { continue }
            // The version of an application without a registration is not known.
            let version = try? folders.registration(of: record.application).value.version
            for pack in manifest.packs {
                guard case .essential(let events) = pack.policy,
                    events.contains(.firstInstallation), pack.isFor(applicationVersion: version),
                    !isDeclined(pack.id, by: record.application),
                    try view.copies(of: pack.id).isEmpty
                else { continue }
                missing[record.application, default: []].append(pack)
            }
        }
    }

    /// Returns whether the application's extension declined the pack.
    private func isDeclined(_ id: PackID, by application: ApplicationID) -> Bool {
        histories.contains { _, other, history in
            other == application
                && history.packs.contains { $0.id == id && $0.reason == .declined }
        }
    }
}

extension DoctorReport {
    /// Checks that manifests can be read, that essential packs are staged, and that runs have succeeded.
    mutating func check(_ packs: PackCheck) {
        checkManifests(packs)
        checkEssentialPacks(packs)
        for conflict in packs.conflicts {
            add(.problem, subject: "packs", finding: conflict.text, hint: OfferConflict.hint)
        }
        for (path, id, history) in packs.histories {
            check(history, of: id, in: path, packs: packs)
        }
        checkClock(packs.latestRecord)
    }

    private mutating func checkManifests(_ packs: PackCheck) {
        for record in packs.records {
            do throws(ManifestError) {
                let manifest = try record.manifest.get()
                let revision =
                    record.record.customFormatApplication == nil
                    ? "revision \(manifest.revision)" : "in its own format"
                add(.good, subject: "manifest", finding: "\(manifest.application), \(revision)")
            } catch {
                let hint = Self.run(HintSource.current.staging("prefetch"))
                add(
                    .problem,
                    subject: "manifest",
                    finding: "\(record.record.url): \(error)",
                    hint: hint
                )
            }
        }
        for id in packs.scope.applications
        where !packs.records.contains(where: { $0.application == id }) {
            let hint = Self.run(HintSource.current.ofApplication(id).staging("prefetch"))
            add(.problem, subject: "manifest", finding: "\(id): none was accepted yet", hint: hint)
        }
    }

    private mutating func checkEssentialPacks(_ packs: PackCheck) {
        for record in packs.records {
            let missing = packs.missingPacks(of: record)
            guard !missing.isEmpty else { continue }
            let names = missing.prefix(5).map { "'\($0.id)'" }.joined(separator: ", ")
            let others = missing.count > 5 ? " and \(missing.count - 5) more" : ""
            let source =
                packs.scope.applications.isEmpty
                ? HintSource.current : HintSource.current.ofApplication(record.application)
            add(
                .problem,
                subject: "packs of \(record.application)",
                finding:
                    "\(missing.count.quantity(of: "essential pack is", plural: "essential packs are")) missing: "
                    + names + others,
                hint: Self.run(source.staging("prefetch", "--essential"))
            )
        }
    }

    /// Reports the failures of the last run and the pending event, as notes if the container is another
    /// user's.
    private mutating func check(
        _ history: StagingHistory,
        of id: ApplicationID,
        in path: FilePath,
        packs: PackCheck
    ) {
        let isOwn = path == packs.scope.own
        let source =
            history.isRegistered
            ? HintSource.current.ofApplication(id) : HintSource.current.inContainer(path)
        HintSource.$current.withValue(source) {
            let location = isOwn ? "" : " in '\(path)'"
            func hint(_ text: String?) -> String? {
                let hint = Self.pasteable(text)
                return isOwn ? hint : hint.map { "as root: \($0)" }
            }
            if let problem = history.lastRun?.problem?.asFinding.map({
                FailureReport($0, about: nil)
            }) {
                add(
                    isOwn ? .problem : .note,
                    subject: "last run of \(id)",
                    finding: problem.message + location,
                    hint: hint(problem.hint)
                )
            }
            for entry in history.packs where !packs.isResolved(entry) {
                guard
                    let problem = entry.problem?.asFinding.map({
                        FailureReport($0, about: entry.id)
                    })
                else { continue }
                // An interrupted run does not count.
                let runs = max(entry.failures, 1).quantity(of: "run", plural: "runs in a row")
                // A periodic run is complete without an on-demand pack: the failure stays until the application requests the pack.
                let isOnDemand = packs.isOnDemand(entry.id, of: id)
                let load = source.staging("load", entry.id.text)
                add(
                    isOwn && !isOnDemand ? .problem : .note,
                    subject: "pack '\(entry.id)' of \(id)",
                    finding: "\(runs) failed\(location): \(problem.message)",
                    hint: isOnDemand ? Self.run(load) : hint(problem.hint)
                )
            }
            if !history.pending.isEmpty {
                let command = Self.run(source.staging("prefetch"))
                add(
                    .note,
                    subject: "packs of \(id)",
                    finding:
                        "\(history.pending.listed) \(history.pending.count > 1 ? "are" : "is") not complete\(location)",
                    hint: isOwn ? command : command.map { "as root: \($0)" }
                )
            }
        }
    }

    /// Checks that the clock is not behind recorded times, since expired metadata would then count as valid.
    private mutating func checkClock(_ latest: Int64?) {
        let now = Int64(Date().timeIntervalSince1970)
        guard let latest, latest > now + 300 else { return }
        let date = InternetTime(Date(timeIntervalSince1970: Double(latest)))
        add(
            .problem,
            subject: "clock",
            finding: "it is behind what a run has recorded at \(date)",
            hint: "as root, run 'timedatectl set-ntp true'"
        )
    }
}

extension StagingHistory.Problem {
    /// The problem, unless the run was offline or interrupted at a person's request; `nil` then.
    fileprivate var asFinding: Self? {
        let kinds: [StagingFailure.Kind] = [.offline, .interrupted]
        return kinds.contains { $0.rawValue == kind } ? nil : self
    }
}

extension PackCheck {
    /// Returns whether the application's manifest has the pack for requests by name only.
    fileprivate func isOnDemand(_ id: PackID, of application: ApplicationID) -> Bool {
        records.contains { record in
            record.application == application
                && (try? record.manifest.get())?[id]?.policy == .onDemand
        }
    }

    /// Returns whether the version whose staging failed, or a newer one, is staged now.
    fileprivate func isResolved(_ entry: StagingHistory.PackEntry) -> Bool {
        guard entry.problem != nil else { return true }
        return (copy(of: entry.id)?.version).map { $0 >= entry.version } ?? false
    }
}
