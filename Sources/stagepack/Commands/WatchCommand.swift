import ArgumentParser
import FoundationEssentials
import StageControl
import StageModel
import StagingService

struct WatchCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Print the events of the daemon's transfers, as they occur.",
        discussion: """
            Until it is interrupted. With --json, one JSON object a line, also for a failure. While the daemon is restarted, as by an \
            upgrade of its package, the command connects again for up to 30 seconds, and warns that events of that time are missing.
            """
    )

    @Flag(help: "As root: print the events of all users.") var all = false
    @Flag(help: "Print the events as JSON, one a line.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    static let printsJSONLines = true

    func perform() async throws(CommandFailure) -> ExitStatus {
        let (all, json) = (all, json)
        let client = try await Daemon.client()
        let (result, _) = await withInterruption(after: nil) {
            () async -> Result<Void, ControlError> in
            do throws(ControlError) {
                try await Self.watch(client, all: all, asJSON: json)
                return .success(())
            } catch {
                return .failure(error)
            }
        }
        switch result {
        case .success, .failure(.cancelled): return .success
        case .failure(let error): throw CommandFailure(error)
        }
    }

    private static func watch(
        _ client: ControlClient,
        all: Bool,
        asJSON: Bool
    ) async throws(ControlError) {
        var isFirst = true
        try await Daemon.reconnecting(from: client) {
            (client: ControlClient) async throws(ControlError) -> Void in
            let events = try await client.watch(all: all)
            if !isFirst {
                Console.note(
                    "stagepack: warning: the connection to the daemon was lost: events of that time are missing"
                )
            }
            isFirst = false
            try await show(events, asJSON: asJSON)
        }
    }

    /// Prints events until standard output fails; throws at the end of the stream.
    private static func show(
        _ events: ControlEvents,
        asJSON: Bool
    ) async throws(ControlError) {
        for try await event in events {
            switch event.kind {
            case .attached, .heartbeat: continue
            default: break
            }
            Console.say(asJSON ? event.jsonLine : event.line)
            // The reader of the output has ended, or its disk is full.
            if Console.outputHasFailed { return }
        }
        throw .lost(events.path)
    }
}

extension SessionEvent {
    /// The event as JSON, on one line.
    fileprivate var jsonLine: String {
        Console.json(OutputDocument(schema: .current, value: self), pretty: false)
    }

    /// The event for people, on one line.
    fileprivate var line: String {
        let task = task.map { " \($0)" } ?? ""
        return "\(InternetTime(time).localTime)\(task)  \(text)"
    }

    private var text: String {
        switch kind {
        case .attached, .heartbeat: return ""
        case .finishedEvents: return "session '\(name)': all tasks have ended"
        case .invalidated: return "session '\(name)' was invalidated"
        case .resumed: return "resumed at \(offset ?? .zero)"
        case .progress: return amount
        case .changed:
            let reasons = (pendingReasons ?? []).map(\.text).joined(separator: "; ")
            return reasons.isEmpty ? "runs" : "waits: \(reasons)"
        case .challenged: return "waits: \(PendingReason.Kind.authentication.text)"
        case .completed: return "completed, \(amount)"
        case .failed:
            return "failed: \(failure?.reason.escapedForDisplay ?? "no reason given")"
        case .cancelled: return "cancelled"
        }
    }

    /// The identifier of the session, on one line.
    private var name: String { session?.escapedForDisplay ?? "" }

    private var amount: String {
        let isUpload = (bytesSent ?? .zero) > .zero
        let done = isUpload ? bytesSent : bytesReceived
        let total = bytesExpected.map { " of \($0)" } ?? ""
        return "\(done ?? .zero)\(total) \(isUpload ? "sent" : "received")"
    }
}
