import Glibc
import StageControl
import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Requests of the protocol in the form that tests use.
extension DaemonProcess {
    /// Makes a session, with a configuration that `change` changes.
    func makeSession(
        _ identifier: String = "s",
        _ change: (inout SessionConfiguration) -> Void = { _ in }
    ) async throws {
        var configuration = SessionConfiguration()
        change(&configuration)
        try await client.makeSession(identifier, configuration: configuration)
    }

    /// Creates a download, and returns its number.
    @discardableResult
    func download(
        _ url: String,
        token: String? = nil,
        in session: String = "s",
        _ change: (inout TransferRequest) -> Void = { _ in }
    ) async throws -> Int64 {
        var request = TransferRequest(token: token ?? url, kind: .download, url: url)
        change(&request)
        let ids = try await client.createTasks([request], in: session)
        return try #require(ids.first)
    }

    /// Changes the state of a task, and returns the task.
    @discardableResult
    func change(_ id: Int64, to state: TransferChange.State) async throws -> TransferTask {
        var change = TransferChange()
        change.state = state
        return try await client.change(id, by: change)
    }

    /// Attaches, after the client that was attached before has detached.
    func attach(
        _ session: String = "s",
        after sequence: Int64 = 0,
        launch: String? = nil
    ) async throws -> ControlEvents {
        var events: ControlEvents?
        try await StageTesting.poll("another client stays attached to '\(session)'") {
            do throws(ControlError) {
                events = try await client.events(of: session, after: sequence, launch: launch)
            } catch {
                guard case .refused(let refusal) = error, refusal.code == .conflict else {
                    throw error
                }
            }
            return events != nil
        }
        return try #require(events)
    }

    /// Attaches, and returns the events up to the first for which `isLast` returns `true`.
    func events(
        of session: String = "s",
        after sequence: Int64 = 0,
        within timeout: Duration = .seconds(120),
        until isLast: @escaping @Sendable (SessionEvent) -> Bool
    ) async throws -> [SessionEvent] {
        let stream = try await attach(session, after: sequence)
        defer { stream.close() }
        return try await stream.take(within: timeout, until: isLast)
    }

    /// The durable events of a session once everything in it has ended.
    func outcomes(
        of session: String = "s",
        after sequence: Int64 = 0,
        within timeout: Duration = .seconds(120)
    ) async throws -> [SessionEvent] {
        try await events(of: session, after: sequence, within: timeout) {
            $0.kind == .finishedEvents
        }
        .filter { $0.sequence != nil }
    }

    /// Waits until a task waits for these reasons, and nothing else.
    func wait(for reasons: [PendingReason.Kind], of task: Int64) async throws {
        try await StageTesting.poll("task \(task) never waits for \(reasons)") {
            try await client.task(task).pendingReasons.map(\.kind) == reasons
        }
    }

    /// Waits until a task is in a state.
    func wait(for state: TransferTask.State, of task: Int64) async throws {
        try await StageTesting.poll("task \(task) is never \(state)") {
            try await client.task(task).state == state
        }
    }

    /// Changes the journal, also that of a running daemon.
    func changeJournal(_ statement: String) async throws {
        let script = """
            import sqlite3, sys
            with sqlite3.connect(sys.argv[1]) as journal: journal.execute(sys.argv[2])
            """
        let journal = state.appending("journal.sqlite").string
        let command = ["/usr/bin/python3", "-c", script, journal, statement]
        _ = try await Peer(self).run(as: geteuid(), getegid(), command)
    }

    /// Returns the number of descriptors that the daemon has.
    func descriptorCount() throws -> Int {
        let number = try #require(process)
        return try Directory.open(FilePath("/proc/\(number)/fd")).entries().count
    }

    /// Returns the names in a directory of the daemon's state; none if it does not exist.
    func names(in name: String) throws -> [String] {
        guard let directory = try Directory.open(state).directory(FilePath(name)) else {
            return []
        }
        return try directory.entries().map(\.path.string).sorted()
    }
}

extension ControlEvents {
    /// Returns the events up to the first for which `isLast` returns `true`.
    func take(
        within timeout: Duration = .seconds(120),
        until isLast: @escaping @Sendable (SessionEvent) -> Bool
    ) async throws -> [SessionEvent] {
        try await withThrowingTaskGroup(of: [SessionEvent]?.self) { group in
            group.addTask {
                var events: [SessionEvent] = []
                for try await event in self {
                    events.append(event)
                    if isLast(event) { return events }
                }
                throw DaemonProcess.Failure(description: "the stream ended after \(events)")
            }
            group.addTask {
                // The task is cancelled once it is not needed.
                try? await Task.sleep(for: timeout)
                return nil
            }
            let events = try await group.next() ?? nil
            group.cancelAll()
            return try #require(events, "what was waited for did not come in \(timeout)")
        }
    }
}

extension SessionEvent {
    /// Properties of an event that are the same in every run.
    var gist: String {
        let number = sequence.map { "\($0) " } ?? ""
        return "\(number)\(kind.rawValue)\(task.map { " of \($0)" } ?? "")"
    }
}

/// The digest of content, in hexadecimal digits.
func sha256(_ bytes: [UInt8]) -> String { "\(Digest(of: bytes))" }
