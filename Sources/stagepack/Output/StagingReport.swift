import StageContainer
import StageControl
import StageEngine
import StageModel
import StageSystem

/// What a command that stages packs prints: what was decided and done with each pack.
struct StagingReport: Codable {
    /// The container.
    var container: String
    /// The application that the manifest is for.
    var application: ApplicationID
    /// The revision of the manifest.
    var revision: Int
    /// The packs, in the order in which they are staged.
    var packs: [PackReport]
    /// Bytes that came over the wire.
    var transferred = ByteCount.zero
    /// Packs that no manifest offers any more and that were removed; `nil` where nobody looked.
    var removed: [PackID]?
    /// What went to make room, or would go: a plan; `nil` for nothing.
    var evicted: [EvictionReport]?
    /// Files that the application's extension asked for; `nil` where none was asked.
    var files: [FileReport]?
    /// What went wrong with the extension; policies decided instead.
    var extensionProblem: FailureReport?
    /// Why the stored manifest was used instead of the server's.
    var manifestProblem: FailureReport?

    init(container: String, manifest: Manifest, plan: Plan) {
        self.container = container
        application = manifest.application
        revision = manifest.revision
        // Of a run for packs by name nobody wants to hear of thousands of others.
        packs = plan.entries.filter { $0.decision != .leave(.notSelected) }.map(PackReport.init)
        if !plan.evictions.isEmpty { evicted = plan.evictions.map(EvictionReport.init) }
    }

    /// Adds how each pack ended.
    mutating func add(_ staged: StagedPacks) {
        settle(staged.evicted)
        for index in packs.indices {
            if let holds = staged.waiting[packs[index].id] {
                packs[index].outcome = .waiting
                packs[index].reason = holds.map(\.reason.text).joined(separator: "; ")
            }
            guard let outcome = staged.outcomes[packs[index].id] else { continue }
            packs[index].add(outcome)
            transferred += packs[index].transferred ?? .zero
        }
        add(staged.progress)
    }

    /// Adds what was being received for packs that were interrupted.
    private mutating func add(_ progress: [PackProgress]) {
        for pack in progress {
            guard let index = packs.firstIndex(where: { $0.id == pack.id }),
                packs[index].error?.status == ExitStatus.interrupted.rawValue
            else { continue }
            packs[index].source = pack.source
            packs[index].transferred = max(.zero, pack.received - pack.reused)
        }
    }

    /// Tells of the packs that were interrupted that it was the deadline that did it.
    mutating func nameDeadline() {
        for index in packs.indices
        where packs[index].error?.status == ExitStatus.interrupted.rawValue {
            let pack = packs[index]
            let place = pack.source.map { source in
                ": \(pack.transferred ?? .zero) of \(pack.downloadSize) had arrived from "
                    + "'\(source.forDisplay())'"
            }
            packs[index].error?.message = "pack '\(pack.id)': the time was up\(place ?? "")"
            packs[index].error?.status = ExitStatus.unfinished.rawValue
        }
    }

    /// Marks the packs that would be staged as failed: without the network there is nothing to try.
    mutating func refuseOffline() {
        for index in packs.indices where packs[index].outcome == .planned {
            packs[index].outcome = .failed
            packs[index].error = FailureReport(
                .offline("pack '\(packs[index].id)': it is not here")
            )
        }
    }

    /// The packs that ought to be staged and are not.
    var failures: [FailureReport] {
        [extensionProblem].compactMap(\.self) + packs.compactMap(\.error)
            + (files ?? []).compactMap(\.error)
    }
}

/// What was decided and done with one pack.
struct PackReport: Codable {
    /// How a pack ended.
    enum Outcome: String, Codable {
        /// It will be staged: a plan.
        case planned
        /// It was fetched and published.
        case staged
        /// It was there.
        case present
        /// Nothing was done.
        case left
        /// It could not be staged.
        case failed
        /// The daemon has it staged when network and power are such as it waits for.
        case waiting
        /// It was staged, and went to make room, or would go: a plan.
        case evicted
    }

    var id: PackID
    var version: Int
    var policy: String
    var outcome: Outcome
    var reason: String
    var downloadSize: ByteCount
    var installedSize: ByteCount
    var transferred: ByteCount?
    var reused: ByteCount?
    var source: String?
    var error: FailureReport?

    init(_ entry: Plan.Entry) {
        id = entry.pack.id
        version = entry.pack.version
        policy = entry.pack.policy.name
        downloadSize = entry.pack.downloadSize
        installedSize = entry.pack.installedSize
        reason = entry.decision.explanation
        switch entry.decision {
        case .stage: outcome = .planned
        case .leave(.upToDate): outcome = .present
        case .leave: outcome = .left
        case .evict: outcome = .evicted
        case .refuse(let refusal):
            outcome = .failed
            error = FailureReport(CommandFailure(refusal, pack: id))
        }
    }

    mutating func add(_ outcome: StagingOutcome) {
        switch outcome {
        case .staged(let figures):
            self.outcome = .staged
            transferred = figures.transferred
            reused = figures.reused
            source = figures.source
        case .alreadyStaged:
            self.outcome = .present
            reason = "another process staged it meanwhile"
        case .failed(let error):
            self.outcome = .failed
            self.error = FailureReport(CommandFailure(error, pack: id))
        }
    }
}

extension DownloadPolicy {
    /// The name of the policy in a manifest.
    var name: String {
        switch self {
        case .essential: "essential"
        case .prefetch: "prefetch"
        case .onDemand: "onDemand"
        }
    }
}

extension Planner.PinnedVersion {
    /// What holds the pack, as a fragment.
    var text: String {
        let rollback = rolledBackFrom.map { ", rolled back from version \($0)" } ?? ""
        return "pinned to version \(version)\(rollback)"
    }
}

extension Plan.Decision {
    /// Why the decision was taken, as a fragment.
    var explanation: String {
        switch self {
        case .stage(.missing): "not staged yet"
        case .stage(.outdated(let version)): "version \(version) is staged"
        case .stage(.contentChanged): "other content is staged under this version"
        case .stage(.repair): "what is staged is damaged"
        case .leave(.upToDate): "staged and up to date"
        case .leave(.onDemand): "fetched when the application asks for it"
        case .leave(.otherEvents(let events)):
            "its policy names other events: "
                + (events.isEmpty
                    ? "none" : events.map(\.rawValue).sorted().joined(separator: ", "))
        case .leave(.notEssential): "not essential"
        case .leave(.notSelected): "not asked for"
        case .leave(.declined): "the application's downloader extension did not ask for it"
        case .leave(.pinned(let pin)), .refuse(.pinned(let pin)): pin.text
        case .leave(.otherVersion(let required, let installed)),
            .refuse(.otherVersion(let required, let installed)):
            "for application version '\(required)', \(installed) is installed"
        case .refuse(.noSpace): "does not fit"
        case .refuse(.exceedsQuota): "does not fit into the quota"
        case .evict(let eviction): "makes room: \(eviction.explanation)"
        case .refuse(.exceedsAllowance(let allowance, _, _)): "exceeds '\(allowance.rawValue)'"
        case .refuse(.disallowedDomain): "its hosts are not in 'downloadDomainAllowList'"
        }
    }
}

extension StagingReport: CustomStringConvertible {
    /// One line that tells what happened; the failures are told one by one besides.
    var description: String {
        let staged = packs.count { $0.outcome == .staged }
        let present = packs.count { $0.outcome == .present }
        let failed = packs.count { $0.outcome == .failed }
        var text = "\(application): \(staged) staged, \(present) up to date"
        if failed > 0 { text += ", \(failed) failed" }
        let waiting = packs.filter { $0.outcome == .waiting }
        if let first = waiting.first { text += ", \(waiting.count) waiting (\(first.reason))" }
        if let files, !files.isEmpty {
            text += ", \(files.count { $0.outcome == .staged }) of \(files.count) files"
        }
        if let removed, !removed.isEmpty { text += ", \(removed.count) removed" }
        if let evicted, !evicted.isEmpty { text += ", \(evicted.count) evicted" }
        if transferred > .zero { text += " (\(transferred) transferred)" }
        let lines = (evicted ?? []).map { "\nevicted to make room: \($0)" }
        return text + " in \(container)" + lines.joined()
    }
}

extension PackReport.Outcome {
    /// What is to be done, as a plan says it.
    fileprivate var word: String {
        switch self {
        case .planned: "stage"
        case .failed: "refuse"
        case .evicted: "evict"
        case .staged, .present, .left, .waiting: "leave"
        }
    }
}

/// What `stagepack plan` prints: a table of the decisions.
struct PlanReport: Codable, CustomStringConvertible {
    var plans: [StagingReport]

    var description: String {
        plans.map { plan in
            let rows = plan.packs.map { pack in
                [
                    pack.outcome.word,
                    pack.id.text, "\(pack.version)", pack.policy, "\(pack.downloadSize)",
                    pack.reason,
                ]
            }
            let table = Table(
                head: ["", "pack", "version", "policy", "download", "why"],
                rows: rows
            )
            let lines = (plan.evicted ?? []).map { "\nto make room: \($0)" }
            return "\(plan.application), revision \(plan.revision), into \(plan.container)\n"
                + "\(table)\(lines.joined())"
        }.joined(separator: "\n\n")
    }
}

/// Columns of text, as wide as what they hold.
struct Table: CustomStringConvertible {
    var head: [String]
    var rows: [[String]]

    var description: String {
        let all = [head] + rows
        let widths = head.indices.map { column in all.map { $0[column].count }.max() ?? 0 }
        return all.map { row in
            let cells = zip(row, widths).map { text, width in
                text + String(repeating: " ", count: width - text.count)
            }
            let line = cells.joined(separator: "  ")
            return String(line.reversed().drop { $0 == " " }.reversed())
        }.joined(separator: "\n")
    }
}
