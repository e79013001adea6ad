import FoundationEssentials
import StageContainer
import StageControl
import StageDisplay
import StageEngine
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

/// Output of a command that stages packs: the decision and the outcome for each pack.
struct StagingReport: Encodable {
    /// The container.
    var container: String
    /// The application of the manifest.
    var application: ApplicationID
    /// The revision of the manifest; `nil` for a manifest in a format of the application's own.
    var revision: Int?
    /// The packs, in the order in which they are staged.
    var packs: [PackReport]
    /// The bytes received over the network.
    var transferred = ByteCount.zero
    /// Removed packs that no manifest offers any more; `nil` if the run did not look for any.
    var removed: [PackID]?
    /// The evictions to free space, or the planned ones; `nil` if there are none.
    var evicted: [EvictionReport]?
    /// Files that the application's extension requested; `nil` if no extension was asked.
    var files: [FileReport]?
    /// The failure of the extension; policies decided instead.
    var extensionProblem: FailureReport?
    /// The failure to download the manifest; the stored manifest was used instead.
    var manifestProblem: FailureReport?
    /// The time at which the manifest's signatures were verified with the server; `nil` if it has none.
    var manifestVerified: Date?
    /// The number of the daemon's transfer that continues the run; `nil` if none does.
    var transfer: Int64?

    /// Creates the report of a result; hints name the result's container.
    init(_ result: StagingResult) {
        var source = HintSource.current.inContainer(result.container)
        let advice = result.packs.compactMap { $0.failure?.advice }
        if advice.contains(.freeSpace) || advice.contains(.freeInodes) {
            // A person wants the packs of the run.
            let wanted = result.packs.filter { $0.outcome != .left }.map(\.id)
            source.removable = RemovableContent(in: result.container, sparing: Set(wanted))
        }
        self = HintSource.$current.withValue(source) { StagingReport(inSource: result) }
    }

    private init(inSource result: StagingResult) {
        container = result.container.string
        application = result.application
        revision = result.revision
        packs = result.packs.map(PackReport.init)
        transferred = result.transferred
        removed = result.removed
        if !result.evicted.isEmpty { evicted = result.evicted.map(EvictionReport.init) }
        files = result.files.map { $0.map(FileReport.init) }
        extensionProblem = result.extensionProblem.map(FailureReport.init)
        manifestProblem = result.manifestProblem.map(FailureReport.init)
        transfer = result.resumedTask
        manifestVerified = result.manifestVerifiedAt.map {
            Date(timeIntervalSince1970: Double($0))
        }
        guard let task = result.resumedTask else { return }
        for (index, pack) in result.packs.enumerated() where pack.hasEndedEarly {
            packs[index].error?.hint =
                "the daemon continues it: run the same command again to wait for it, or "
                + "\(HintSource.quoted(["cancel", "\(task)"])) to end it"
        }
    }

    /// Returns the report with the location and the pin of each staged pack, in the containers that readers search.
    func located(by target: StagingTarget) -> StagingReport {
        var paths = target.containersForReading
        if paths.isEmpty { paths = [FilePath(container)] }
        // Without a readable container, the locations and pins stay unknown.
        guard let view = try? ContainerView(opening: paths) else { return self }
        let locations = view.containers.map {
            ContainerLocations.location(of: $0, environment: target.environment)
        }
        // The plan has found the packs that are up to date, so that their links need not be read again.
        let own = view.containers.firstIndex { $0.string == container }
        let only = view.positions.count == 1 && view.positions.first == own ? own : nil
        let pins = only.flatMap { try? view.readers[$0]?.pins() }
        var report = self
        for index in packs.indices {
            let id = packs[index].id
            if let only, let pins, packs[index].isUpToDate {
                report.packs[index].pin = pins[id].map { PinStatus(of: id, pin: $0) }
                report.packs[index].location = locations[only]
                continue
            }
            let copy = try? view.copiesWithPins(of: id).first
            report.packs[index].pin = copy?.pin.map { PinStatus(of: id, pin: $0) }
            report.packs[index].location = copy.flatMap { locations[$0.container] }
        }
        return report
    }

    /// Returns the report with the containers of packs that were up to date in another container of the
    /// target.
    func naming(containersOf target: StagingTarget) -> StagingReport {
        // Without a readable container, none is named.
        guard packs.contains(where: { $0.outcome == .present }),
            let view = try? ContainerView(opening: target.containersForReading),
            zip(view.containers, view.readers)
                .contains(where: { $0.string != container && $1 != nil })
        else { return self }
        var report = self
        for index in packs.indices where packs[index].outcome == .present {
            guard let copy = try? view.copies(of: packs[index].id).first else { continue }
            let path = view.containers[copy.container].string
            if path != container { report.packs[index].otherContainer = path }
        }
        return report
    }

    /// The failure of the extension, and the failures of packs and files.
    var failures: [FailureReport] {
        [extensionProblem].compactMap(\.self) + packs.compactMap(\.error)
            + (files ?? []).compactMap(\.error)
    }
}

extension PackResult {
    /// True if a signal or the deadline has ended the run before the pack was staged.
    fileprivate var hasEndedEarly: Bool {
        failure?.kind == .interrupted || failure?.kind == .deadlineExceeded
    }
}

/// The decision and the outcome for one pack.
struct PackReport: Encodable {
    var id: PackID
    var version: Int
    var policy: String
    var outcome: PackOutcome
    var reason: String
    /// In a plan, the owner of the container that readers now use, user or system; `nil` if the pack is not
    /// staged, or in a container at another path.
    var location: ContainerLocation?
    /// In a plan, the pin of the copy that readers now use; `nil` if there is none.
    var pin: PinStatus?
    /// `true` if the plan has found the offered version in its container.
    var isUpToDate: Bool
    /// Another container that has the pack, for a pack that is up to date there, for people.
    var otherContainer: String?
    /// Another application of the group whose content is staged under the offered version, for people; `nil` if there is none.
    var conflictingApplication: ApplicationID?
    /// The reason, with times in a form for people.
    var textOfReason: String
    var downloadSize: ByteCount
    var installedSize: ByteCount
    var transferred: ByteCount?
    /// The bytes that staging the pack will transfer; `nil` unless it is planned.
    var transferSize: ByteCount?
    /// Set if ``transferSize`` is exact, and not an upper bound.
    var isTransferSizeExact: Bool?
    /// The maximum disk space that staging the pack takes; `nil` unless it is planned.
    var diskSpace: ByteCount?
    /// The inodes that staging the pack takes; `nil` unless it is planned.
    var inodes: Int?
    /// True for a planned pack whose version is still in the container, from before a rollback; `nil` otherwise.
    var isKept: Bool?
    var reused: ByteCount?
    var source: String?
    /// The ways to transfer the content of an indexed pack, with their bytes; `nil` for others.
    var transfer: TransferReport?
    var error: FailureReport?

    private enum CodingKeys: String, CodingKey {
        case id, version, policy, outcome, reason, downloadSize, installedSize, transferred, reused
        case location, pin, source, transfer, transferSize, isTransferSizeExact, isKept, error
        case diskSpace, inodes
    }

    init(_ result: PackResult) {
        id = result.id
        version = result.pack.version
        policy = result.pack.policy.name
        outcome = result.outcome
        reason = result.reason.text(for: result.outcome, audience: .programs)
        textOfReason = result.reason.text(for: result.outcome, audience: .people)
        isUpToDate = result.reason == .upToDate
        if case .offeredByOther(let other, let staged) = result.reason,
            staged == result.pack.version
        {
            // The planner has taken it from an application's identifier.
            conflictingApplication = try? ApplicationID(other)
        }
        downloadSize = result.pack.downloadSize
        installedSize = result.pack.installedSize
        transferred = result.transferred
        if result.outcome == .planned {
            transferSize = result.transferSize
            isTransferSizeExact = result.isTransferSizeExact
            diskSpace = result.space
            inodes = result.inodes
            if result.isKept { isKept = true }
        }
        reused = result.reused
        source = result.source
        transfer = result.transfer.map(TransferReport.init)
        error = result.failure.map(FailureReport.init)
    }
}

/// The outcome of a file that an extension requested.
struct FileReport: Codable {
    var identifier: String
    var url: String
    var size: ByteCount
    var isEssential: Bool
    var outcome: PackOutcome
    var error: FailureReport?

    init(_ result: FileResult) {
        identifier = result.identifier
        url = result.url
        size = result.size
        isEssential = result.isEssential
        outcome = result.outcome
        error = result.failure.map(FailureReport.init)
    }
}

extension StagingReport: CustomStringConvertible, StyledReport {
    var description: String { styled.map(\.description).joined(separator: "\n") }

    /// A summary line, then a line for each eviction; other lines report the failures.
    var styled: [StyledText] {
        let staged = packs.count { $0.outcome == .staged }
        let others = packs.compactMap(\.otherContainer)
        let present = packs.count { $0.outcome == .present } - others.count
        let failed = packs.count { $0.outcome == .failed }
        let head = StyledText(application.text, style: .name) + ": "
        let count = StyledText("\(staged) staged", style: staged > 0 ? .success : .plain)
        let failures = StyledText(failed > 0 ? "\(failed) failed" : "", style: .failure)
        var text = ""
        let waiting = packs.filter { $0.outcome == .waiting }
        if let first = waiting.first {
            text += ", \(waiting.count) waiting (\(first.textOfReason))"
        }
        if let files, !files.isEmpty {
            text +=
                ", \(files.count { $0.outcome == .staged }) of \(files.count.quantity(of: "file"))"
        }
        if let removed, !removed.isEmpty { text += ", \(removed.count) removed" }
        if let evicted, !evicted.isEmpty { text += ", \(evicted.count) evicted" }
        if transferred > .zero { text += " (\(transferred) transferred)" }
        let lines = (evicted ?? []).map { StyledText("evicted to make room: \($0)") }
        let isElsewhere = !others.isEmpty && staged + present + failed == 0 && text.isEmpty
        let here =
            isElsewhere
            ? count
            : count + ", \(present) up to date" + (failed > 0 ? ", " : "") + failures + text
                + " in \(container)"
        let there = Set(others).sorted().map { path in
            ", \(others.count { $0 == path }) up to date in \(path)"
        }
        return [head + here + there.joined()] + lines
    }
}

extension Int? {
    /// The revision of a manifest, for people.
    var asManifestText: String { map { "revision \($0)" } ?? "the manifest in its own format" }
}

/// A table of text with columns as wide as their content.
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
            // Trims bytes, not characters, since a table may have thousands of lines.
            let padding = line.utf8.reversed().prefix { $0 == UInt8(ascii: " ") }.count
            return String(Substring(line.utf8.dropLast(padding)))
        }.joined(separator: "\n")
    }
}
