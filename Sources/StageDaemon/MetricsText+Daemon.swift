import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTransfer

extension MetricsText {
    /// A text of the daemon's metrics, without samples.
    static var daemon: MetricsText {
        MetricsText([
            Metric(
                "stagepack_daemon_build_info",
                help: "The versions of the daemon and of its libraries, in labels; the value is 1."
            ),
            Metric(
                "stagepack_daemon_start_time_seconds",
                help: "The start time of the daemon, from which counters count."
            ),
            Metric("stagepack_daemon_sessions", help: "Sessions of clients."),
            Metric(
                "stagepack_daemon_tasks",
                help: "Unfinished transfers and stagings of packs, by state."
            ),
            Metric(
                "stagepack_daemon_ending_tasks",
                help: "Tasks whose content is being committed, or whose end is not recorded yet."
            ),
            Metric(
                "stagepack_daemon_waiting_tasks",
                help: "Unfinished tasks that wait, by reason; a task may have several reasons."
            ),
            Metric(
                "stagepack_daemon_ended_tasks_total",
                kind: .counter,
                help: "Tasks that have ended, by outcome."
            ),
            Metric(
                "stagepack_daemon_failed_tasks_total",
                kind: .counter,
                help: "Tasks that have failed, by the kind of the failure."
            ),
            Metric(
                "stagepack_daemon_received_bytes_total",
                kind: .counter,
                help: "Content bytes that downloads have received, without those of stagings."
            ),
            Metric(
                "stagepack_daemon_sent_bytes_total",
                kind: .counter,
                help: "File bytes that uploads have sent."
            ),
            Metric(
                "stagepack_daemon_journal_used_bytes",
                help: "Bytes of the user's records in the journal, which are limited."
            ),
            Metric(
                "stagepack_daemon_journal_bytes",
                help: "Bytes of the journal's files on the disk."
            ),
        ])
    }

    /// Adds a sample for each figure, including zeros, so that every series exists from the start.
    mutating func add(_ figures: TransferFigures) {
        add("stagepack_daemon_sessions", value: Double(figures.sessions))
        for isStaging in [false, true] {
            for state in TransferFigures.State.allCases {
                let labels = ["kind": isStaging ? "staging" : "transfer", "state": state.rawValue]
                let count = figures.tasks[.init(isStaging: isStaging, state: state)] ?? 0
                add("stagepack_daemon_tasks", labels: labels, value: Double(count))
            }
        }
        add("stagepack_daemon_ending_tasks", value: Double(figures.ending))
        for reason in PendingReason.Kind.allCases {
            let count = Double(figures.reasons[reason] ?? 0)
            let labels = ["reason": reason.rawValue]
            add("stagepack_daemon_waiting_tasks", labels: labels, value: count)
        }
        let counters = figures.counters
        for outcome in TransferCounters.endings {
            let count = Double(counters.ends[outcome] ?? 0)
            let labels = ["outcome": outcome.rawValue]
            add("stagepack_daemon_ended_tasks_total", labels: labels, value: count)
        }
        for kind in TransferFailure.Kind.allCases {
            let count = Double(counters.failures[kind] ?? 0)
            let labels = ["kind": kind.rawValue]
            add("stagepack_daemon_failed_tasks_total", labels: labels, value: count)
        }
        add(
            "stagepack_daemon_received_bytes_total",
            value: Double(counters.received.rawValue)
        )
        add("stagepack_daemon_sent_bytes_total", value: Double(counters.sent.rawValue))
    }
}

extension TransferCoordinator {
    /// Returns the metrics of the sessions that a client sees in lists, as text for Prometheus.
    func metrics(
        for client: ClientCredentials,
        version: String
    ) async throws(ControlRefusal) -> String {
        var metrics = MetricsText.daemon
        let libraries = [
            "libcurl": LinkedTransferLibrary.version, "sqlite": LinkedDatabaseLibrary.version,
        ]
        metrics.add(
            "stagepack_daemon_build_info",
            labels: libraries.merging(["version": version]) { $1 },
            value: 1
        )
        metrics.add(
            "stagepack_daemon_start_time_seconds",
            value: startTime.timeIntervalSince1970.rounded()
        )
        var figures = state.figures(for: client, at: .now)
        for transfer in live.values where client.wantsAll || transfer.user == client.user {
            let current = transfer.current
            figures.counters.received += current.newlyReceived
            figures.counters.sent += current.newlySent
        }
        metrics.add(figures)
        // The size of all records would tell a user about those of others.
        if client.wantsAll || client.user == UserIdentity.current.user {
            let size = await journal.size()
            metrics.add("stagepack_daemon_journal_bytes", value: Double(size.rawValue))
        }
        guard !client.wantsAll else { return metrics.text }
        do throws(DaemonError) {
            let used = try await journal.usage(of: client.user)
            metrics.add("stagepack_daemon_journal_used_bytes", value: Double(used))
        } catch {
            throw ControlRefusal(error)
        }
        return metrics.text
    }
}
