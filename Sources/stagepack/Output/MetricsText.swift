/// Samples in the text format of Prometheus, grouped by metric.
struct MetricsText {
    private var samples: [String: [String]] = [:]

    /// The metrics with their help texts, in output order.
    private static let metrics: [(name: String, help: String)] = [
        ("stagepack_build_info", "The version of StagePack; always 1."),
        ("stagepack_application_readable", "Whether the application's container could be read."),
        ("stagepack_packs", "Packs by policy and state."),
        ("stagepack_missing_essential_packs", "Essential packs that are not staged."),
        ("stagepack_staged_bytes", "Bytes of the files of staged packs."),
        ("stagepack_downloaded_bytes", "Bytes of downloads that are not complete."),
        ("stagepack_pack_staged_timestamp_seconds", "The time at which a pack was staged."),
        ("stagepack_manifest_received_timestamp_seconds", "The time of the manifest in use."),
        ("stagepack_last_run_timestamp_seconds", "The end of the last run."),
        ("stagepack_last_run_failed", "Whether the last run failed, or a pack of it."),
        ("stagepack_last_success_timestamp_seconds", "The end of the last run without a failure."),
        ("stagepack_pending_event", "Whether an installation or update is not complete."),
        ("stagepack_pack_failures", "Runs in a row that could not stage a pack."),
    ]

    /// Adds a sample of one of the metrics.
    mutating func add(_ name: String, labels: [String: String], value: Double) {
        precondition(Self.metrics.contains { $0.name == name }, "a metric has a meaning")
        let names = labels.sorted { $0.key < $1.key }
            .map { "\($0.key)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",")
        let number = Int64(exactly: value).map(String.init) ?? "\(value)"
        samples[name, default: []].append("\(name){\(names)} \(number)")
    }

    /// The text, with a line break at the end.
    var text: String {
        Self.metrics.compactMap { metric in
            samples[metric.name].map { lines in
                let head = ["# HELP \(metric.name) \(metric.help)", "# TYPE \(metric.name) gauge"]
                return (head + lines).map { $0 + "\n" }.joined()
            }
        }.joined()
    }

    private static func escaped(_ value: String) -> String {
        value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing(
            "\n",
            with: "\\n"
        )
    }
}
