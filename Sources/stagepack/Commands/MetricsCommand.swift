import ArgumentParser
import FoundationEssentials
import StageContainer
import StageControl
import StageModel
import StageSystem
import StagingService
import SystemPackage

struct MetricsCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "metrics",
        abstract: "Write the state of the registered applications or of the daemon for Prometheus.",
        discussion: """
            In the text format that the textfile collector of the node exporter reads. A file is \
            replaced in one step, so that the collector never reads half of one. With --daemon: \
            the user's transfers, and those of all users for root.
            """
    )

    @Option(
        name: [.customShort("o"), .customLong("output-path")],
        help: ArgumentHelp(
            "The file to write, whose name has to end in '.prom'. Default: standard output.",
            valueName: "file"
        ),
        completion: .file(extensions: ["prom"])
    )
    var output: String?

    @Flag(
        name: .customLong("daemon"),
        help: "The daemon's transfers, in place of the registered applications."
    )
    var isOfDaemon = false

    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    var messages: MessageOptions? { messageOptions }
    var printsJSON: Bool { false }

    func validate() throws {
        if let output, !output.hasSuffix(".prom") {
            throw ValidationError(
                "expected a file that ends in '.prom', found '\(output.forDisplay())': the collector reads no other"
            )
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let text = isOfDaemon ? try await Self.daemonText() : try Self.applicationsText()
        guard let output else {
            Console.write(text, to: 1)
            return .success
        }
        try Self.replace(FilePath(output), with: text)
        return .success
    }

    private static func daemonText() async throws(CommandFailure) -> String {
        let isRoot = UserIdentity.current.user == 0
        return try await Daemon.ask { client throws(ControlError) in
            try await client.metrics(all: isRoot)
        }
    }

    private static func applicationsText() throws(CommandFailure) -> String {
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let applications = try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.applications()
        }
        var metrics = MetricsText.applications
        metrics.add("stagepack_build_info", labels: ["version": Version.text], value: 1)
        for application in applications { ApplicationMetrics(application).add(to: &metrics) }
        return metrics.text
    }

    private static func replace(_ path: FilePath, with text: String) throws(CommandFailure) {
        let above = path.removingLastComponent()
        guard let name = path.lastComponent else {
            throw .usage("expected a file, found '\(path)'")
        }
        do throws(FileError) {
            let directory = try Directory.open(above.isEmpty ? "." : above)
            // World-readable, since the collector runs as another user.
            try directory.rewrite(
                Array(text.utf8),
                to: name,
                durably: false,
                exactly: [.ownerReadWrite, .groupRead, .otherRead]
            )
        } catch {
            throw CommandFailure(output: error)
        }
    }
}

/// The metrics of one application.
private struct ApplicationMetrics {
    private let application: ApplicationID
    private let report: StatusReport?
    /// The history of the container with the newest run.
    private let history: StagingHistory?
    /// The time of the last success in any container, in seconds since 1970: a user's run for named packs, and a failed
    /// one, do not hide that of the system's timer.
    private let lastSuccessAt: Int64?

    /// Reads the same data as `status` and `why`; data that cannot be read sets the metric for readability to
    /// 0.
    init(_ application: ApplicationID) {
        self.application = application
        let source = try? SourceOptions.parse(["--app", application.text])
        let scopes = source.flatMap { try? ContainerScopes($0) }
        report = scopes.flatMap { scopes in
            var scopes = scopes
            // Without a container, no run has begun.
            let report = try? StatusReport(of: &scopes)
            let containers = (report?.parts ?? []).flatMap(\.containers)
            return containers.contains(where: \.isPresent) ? report : nil
        }
        let histories = (scopes?.scopes ?? []).flatMap(\.containers).compactMap { path in
            let reader = try? ContainerReader.open(path)
            return try? reader?.history(of: application)
        }
        history = histories.max { $0.lastRun?.endedAt ?? 0 < $1.lastRun?.endedAt ?? 0 }
        lastSuccessAt = histories.compactMap(\.lastSuccessAt).max()
    }

    func add(to metrics: inout MetricsText) {
        let labels = ["application": application.text]
        metrics.add("stagepack_application_readable", labels: labels, value: report == nil ? 0 : 1)
        guard let report else { return }
        let manifests = report.manifests.filter { $0.application == application }
        addPacks(report.packs, hasManifest: !manifests.isEmpty, to: &metrics)
        for manifest in manifests {
            metrics.add(
                "stagepack_manifest_received_timestamp_seconds",
                labels: labels,
                value: manifest.receivedAt.timeIntervalSince1970
            )
        }
        addRuns(to: &metrics)
    }

    private func addPacks(
        _ packs: [StatusReport.PackStatus],
        hasManifest: Bool,
        to metrics: inout MetricsText
    ) {
        let labels = ["application": application.text]
        for (kind, packs) in Dictionary(grouping: packs, by: Kind.init).sorted(by: {
            $0.key < $1.key
        }) {
            let names = labels.merging(["policy": kind.policy, "state": kind.state]) { $1 }
            metrics.add("stagepack_packs", labels: names, value: Double(packs.count))
        }
        let staged = packs.filter { $0.state != .missing }
        // Without a manifest, it is not known which packs are missing.
        if hasManifest {
            let missing = packs.count { $0.state == .missing && $0.policy == "essential" }
            let name = "stagepack_missing_essential_packs"
            metrics.add(name, labels: labels, value: Double(missing))
        }
        let size = staged.reduce(ByteCount.zero) { $0 + ($1.installedSize ?? .zero) }
        metrics.add("stagepack_staged_bytes", labels: labels, value: Double(size.rawValue))
        let downloaded = packs.reduce(ByteCount.zero) { $0 + ($1.downloaded ?? .zero) }
        metrics.add(
            "stagepack_downloaded_bytes",
            labels: labels,
            value: Double(downloaded.rawValue)
        )
        for pack in staged {
            guard let date = pack.stagedAt else { continue }
            let names = labels.merging(["pack": pack.id.text]) { $1 }
            let name = "stagepack_pack_staged_timestamp_seconds"
            metrics.add(name, labels: names, value: date.timeIntervalSince1970)
        }
    }

    private func addRuns(to metrics: inout MetricsText) {
        let labels = ["application": application.text]
        // 0 without a success, so that an alert for its age fires.
        metrics.add(
            "stagepack_last_success_timestamp_seconds",
            labels: labels,
            value: Double(lastSuccessAt ?? 0)
        )
        guard let history else { return }
        if let run = history.lastRun {
            metrics.add(
                "stagepack_last_run_timestamp_seconds",
                labels: labels,
                value: Double(run.endedAt)
            )
            metrics.add("stagepack_last_run_failed", labels: labels, value: run.hasFailed ? 1 : 0)
        }
        metrics.add(
            "stagepack_pending_event",
            labels: labels,
            value: history.pending.isEmpty ? 0 : 1
        )
        // No run retries a pack on demand: only a request does.
        let onDemand = Set(report?.packs.filter { $0.policy == "onDemand" }.map(\.id) ?? [])
        for pack in history.packs where pack.failures > 0 && !onDemand.contains(pack.id) {
            let names = labels.merging(["pack": pack.id.text]) { $1 }
            metrics.add("stagepack_pack_failures", labels: names, value: Double(pack.failures))
        }
    }

    /// The labels by which packs are counted.
    private struct Kind: Hashable, Comparable {
        var policy: String
        var state: String

        init(_ pack: StatusReport.PackStatus) {
            policy = pack.policy ?? "none"
            state = pack.state.rawValue
        }

        static func < (left: Self, right: Self) -> Bool {
            (left.policy, left.state) < (right.policy, right.state)
        }
    }
}
