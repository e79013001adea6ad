import ArgumentParser
import StageEngine
import StageIndex
import StageModel
import StagePublish

/// Shows the transfer sizes of updates between versions of an indexed pack.
struct DiffCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "diff",
        abstract: "Show what updates to an indexed pack transfer.",
        discussion: """
            Compares indexes of a store ('package --indexed' names them): each older version with \
            the newest, which is the last argument. Nothing has to be published.
            """
    )

    @Argument(
        help: ArgumentHelp("The indexes, the newest last.", valueName: "index"),
        completion: .file()
    )
    var indexes: [String]

    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    mutating func validate() throws {
        if indexes.count < 2 { throw ValidationError("'diff' compares two indexes or more.") }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        var versions: [StoredIndex] = []
        for path in indexes { versions.append(try IndexFile(path).read()) }
        let newest = versions.removeLast()
        let updates = zip(indexes, versions).map { UpdateReport(from: $0, $1, to: newest) }
        Console.print(DiffReport(of: newest, updates: updates), asJSON: json)
        return .success
    }
}

/// Output of `diff`.
private struct DiffReport: Encodable, CustomStringConvertible {
    /// The bytes of a first installation, including the index.
    var downloadSize: ByteCount
    /// Number of requests of a first installation, including the one for the index.
    var requests: Int
    var transfer: TransferReport
    var updates: [UpdateReport]

    init(of version: StoredIndex, updates: [UpdateReport]) {
        let plan = RangePlan(version.index.frames.indices, of: version.index)
        let choice = TransferChoice(
            forInstalling: version.reference,
            objects: ByteCount(plan.byteCount),
            archive: version.archive?.size
        )
        downloadSize = choice.byteCount
        requests = 1 + (choice.way == .archive ? 1 : plan.requests.count)
        transfer = TransferReport(choice)
        self.updates = updates
    }

    var description: String {
        updates.map(\.description).joined(separator: "\n")
            + "\na first installation transfers \(downloadSize) in \(requests.quantity(of: "request"))"
            + "; \(transfer.text)"
    }
}

/// The transfer sizes of the update from one version.
private struct UpdateReport: Encodable, CustomStringConvertible {
    var from: String
    var downloadSize: ByteCount
    var requests: Int
    var reusedFiles: Int
    var changedFiles: Int
    var removedFiles: Int
    var transfer: TransferReport

    init(from path: String, _ old: StoredIndex, to new: StoredIndex) {
        let estimate = UpdateEstimate(
            from: old.index,
            to: new.index,
            using: new.deltaSets[old.reference.contentDigest]
        )
        let delta = new.reference.delta(from: old.reference.contentDigest)
        let objects = estimate.bundleBytes + estimate.deltaBytes
        let indexSize = min(delta?.size ?? new.reference.size, new.reference.size)
        var choice = TransferChoice(
            objects: objects,
            archive: new.archive?.size,
            patch: delta?.patch?.size
        )
        downloadSize = choice.byteCount + indexSize
        if let delta, let patch = delta.patch,
            let early = TransferChoice(
                forUpdatingBy: delta,
                to: new.reference,
                archive: new.archive?.size,
                patch: patch.size
            )
        {
            choice = early
            choice.objects = objects + indexSize
            downloadSize = choice.byteCount
        }
        from = path
        transfer = TransferReport(choice)
        requests = 1 + (choice.way == .objects ? estimate.requests : 1)
        reusedFiles = estimate.reusedFiles
        changedFiles = estimate.changedFiles
        removedFiles = estimate.removedFiles
    }

    var description: String {
        "\(from.forDisplay()): \(downloadSize) in \(requests.quantity(of: "request")); "
            + "\(reusedFiles.quantity(of: "file")) reused, \(changedFiles) changed or new, \(removedFiles) removed; \(transfer.text)"
    }
}
