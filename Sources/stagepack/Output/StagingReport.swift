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

/// What a command that stages packs prints: what was decided and done with each pack.
struct StagingReport: Encodable {
    /// The container.
    var container: String
    /// The application that the manifest is for.
    var application: ApplicationID
    /// The revision of the manifest; `nil` of one in a format of the application's own.
    var revision: Int?
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
    /// When the signatures of the manifest were verified with the server; `nil` where it has none.
    var manifestVerified: Date?

    /// Creates the report of a result; hints name the container that the result names.
    init(_ result: StagingResult) {
        let source = HintSource.current.inContainer(result.container)
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
        manifestVerified = result.manifestVerifiedAt.map {
            Date(timeIntervalSince1970: Double($0))
        }
    }

    /// Returns the report with the location of each pack that is staged, in the containers that readers look in.
    func located(by target: StagingTarget) -> StagingReport {
        var paths = target.containersForReading
        if paths.isEmpty { paths = [FilePath(container)] }
        // A container that cannot be read now has no packs to name.
        guard let view = try? ContainerView(opening: paths) else { return self }
        var report = self
        for index in packs.indices {
            let copy = try? view.copies(of: packs[index].id).first
            report.packs[index].location = copy.flatMap { copy in
                ContainerLocations.location(
                    of: view.containers[copy.container],
                    environment: target.environment
                )
            }
        }
        return report
    }

    /// The failures of packs and files that should be here, and the extension's.
    var failures: [FailureReport] {
        [extensionProblem].compactMap(\.self) + packs.compactMap(\.error)
            + (files ?? []).compactMap(\.error)
    }
}

/// What was decided and done with one pack.
struct PackReport: Encodable {
    var id: PackID
    var version: Int
    var policy: String
    var outcome: PackOutcome
    var reason: String
    /// Of a plan: whose container readers get the pack from now; `nil` if it is not staged, or in another place.
    var location: ContainerLocation?
    /// The reason with times as people read them.
    var textOfReason: String
    var downloadSize: ByteCount
    var installedSize: ByteCount
    var transferred: ByteCount?
    /// The bytes that staging the pack will transfer; `nil` unless it is planned.
    var transferSize: ByteCount?
    /// Whether ``transferSize`` is what will be transferred, and not the most that it can be.
    var isTransferSizeExact: Bool?
    var reused: ByteCount?
    var source: String?
    /// The ways to the content of an indexed pack, and their bytes; `nil` for others.
    var transfer: TransferReport?
    var error: FailureReport?

    private enum CodingKeys: String, CodingKey {
        case id, version, policy, outcome, reason, downloadSize, installedSize, transferred, reused
        case location, source, transfer, transferSize, isTransferSizeExact, error
    }

    init(_ result: PackResult) {
        id = result.id
        version = result.pack.version
        policy = result.pack.policy.name
        outcome = result.outcome
        reason = result.reason.text(for: result.outcome, readers: .programs)
        textOfReason = result.reason.text(for: result.outcome, readers: .people)
        downloadSize = result.pack.downloadSize
        installedSize = result.pack.installedSize
        transferred = result.transferred
        if result.outcome == .planned {
            transferSize = result.transferSize
            isTransferSizeExact = result.isTransferSizeExact
        }
        reused = result.reused
        source = result.source
        transfer = result.transfer.map(TransferReport.init)
        error = result.failure.map(FailureReport.init)
    }
}

/// The outcome of a file that an extension asked for.
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

    /// One line that tells what happened; the failures are told one by one besides.
    var styled: [StyledText] {
        let staged = packs.count { $0.outcome == .staged }
        let present = packs.count { $0.outcome == .present }
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
        let first = head + count + ", \(present) up to date" + (failed > 0 ? ", " : "") + failures
        return [first + text + " in \(container)"] + lines
    }
}

extension Int? {
    /// The revision of a manifest as a person reads it.
    var asManifestText: String { map { "revision \($0)" } ?? "the manifest in its own format" }
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
            // By bytes: a table may have thousands of lines.
            let padding = line.utf8.reversed().prefix { $0 == UInt8(ascii: " ") }.count
            return String(Substring(line.utf8.dropLast(padding)))
        }.joined(separator: "\n")
    }
}
