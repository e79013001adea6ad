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
        let (objects, indexSize) = (ByteCount(plan.byteCount), version.reference.size)
        var candidates = TransferCandidates(of: version.reference, isUpdate: false, from: nil)
        candidates.archive = version.archive?.size
        var choice = candidates.choiceBeforeIndex ?? candidates.choice(objects: objects)
        choice.objects = objects + indexSize
        if !choice.includesIndex { choice.archive = choice.archive.map { $0 + indexSize } }
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
        let update = UpdateTransfer(from: old, to: new)
        let estimate = update.estimate
        from = path
        downloadSize = update.byteCount
        requests = update.requests
        transfer = TransferReport(update.choice)
        reusedFiles = estimate.reusedFiles
        changedFiles = estimate.changedFiles
        removedFiles = estimate.removedFiles
    }

    var description: String {
        "\(from.forDisplay()): \(downloadSize) in \(requests.quantity(of: "request")); "
            + "\(reusedFiles.quantity(of: "file")) reused, \(changedFiles) changed or new, \(removedFiles) removed; \(transfer.text)"
    }
}
