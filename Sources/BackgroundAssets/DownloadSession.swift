import Foundation
import StageControl
import StageExtension
import StageModel
import StageSystem
import Synchronization

/// The downloads of an application group: the tasks of one session of the daemon.
///
/// A session of BackgroundTransfer keeps tasks until the daemon runs, and receives events from the start. This one, like
/// Apple's manager, throws at once without a daemon, and leaves files with the daemon until there is a delegate. Both
/// use ``SessionClient`` and ``SessionConnection``. Calls block.
final class DownloadSession: Sendable {
    /// The group.
    let group: ApplicationGroupID
    /// The client for requests about the session.
    let client: SessionClient
    /// The tasks that this process has cancelled or is cancelling, until their events are received.
    private let cancelled = Mutex<Set<Int64>>([])
    /// The identifiers of the downloads that threads are scheduling, starting or cancelling.
    private let identifiersInUse = ConditionVariable<Set<String>>([])
    /// The maximum number of downloads that are changed at a time: the daemon processes as many requests of a user.
    private static let changeLimit = 4
    let known = Mutex(KnownDownloads())
    /// The connection of the current delegate.
    let connection = Mutex<SessionConnection?>(nil)

    /// Creates the session of a group, which need not exist in the daemon yet.
    init(_ group: ApplicationGroupID, environment: [String: String]) {
        self.group = group
        var configuration = SessionConfiguration()
        configuration.isDiscretionary = true
        configuration.answersChallenges = true
        configuration.sendsLaunchEvents = false
        client = SessionClient(
            "backgroundassets/\(group)",
            configuration: configuration,
            environment: environment
        )
    }

    /// Sends a request to the daemon, without creating the session.
    func ask<Answer>(_ request: ControlRequest<Answer>) throws(ControlError) -> Answer {
        try client.answer(to: request, needsSession: false)
    }

    /// Returns the tasks that have not ended, or whose end no delegate has received; none without a session.
    ///
    /// They have their header fields, so that a download made from one can be scheduled again.
    func tasks() throws(ControlError) -> [TransferTask] {
        try tasks(.tasks(in: client.identifier, headers: true))
    }

    private func tasks(
        _ request: ControlRequest<TaskList>
    ) throws(ControlError) -> [TransferTask] {
        do throws(ControlError) {
            return try ask(request).tasks
        } catch .refused(let refusal) where refusal.code == .notFound {
            return []
        }
    }

    /// Returns the downloads in progress, and those whose end no delegate has received.
    func downloads() throws(BAError) -> [BADownload] {
        let tasks: [TransferTask]
        do throws(ControlError) {
            tasks = try self.tasks()
        } catch {
            throw BAError(error)
        }
        return tasks.filter { $0.state != .cancelled }.map { BADownload.made(of: $0, for: group) }
    }

    /// Schedules a download, which the daemon starts at a time that it chooses.
    func schedule(_ wire: ExtensionURLDownload, note: DownloadNote) throws(BAError) {
        try withDownload(named: note.identifier) { () throws(BAError) in
            guard try task(named: note.identifier)?.isUnfinished != true else {
                throw BAError(
                    .downloadAlreadyScheduled,
                    message: "the download was scheduled before"
                )
            }
            try create(wire, note: note)
        }
    }

    /// Starts a download now: promotes the scheduled one, or else creates a new one in the foreground.
    ///
    /// Either is one request, so a process that is killed meanwhile leaves no new download in the background.
    func start(_ wire: ExtensionURLDownload, note: DownloadNote) throws(BAError) {
        try withDownload(named: note.identifier) { () throws(BAError) in
            if let task = try task(named: note.identifier), task.isUnfinished {
                var promotion = TransferChange()
                promotion.promotes = true
                promotion.failsWithoutRetry = true
                do throws(ControlError) {
                    _ = try client.change(task.id, by: promotion)
                    return
                } catch .refused(let refusal) where Self.ends.contains(refusal.code) {
                    // The task has ended meanwhile, so a new one is created.
                } catch {
                    throw BAError(error)
                }
            }
            try create(wire, note: note, isForeground: true)
        }
    }

    /// Cancels a running download.
    func cancel(_ download: BADownload) throws(BAError) {
        try withDownload(named: download.identifier) { () throws(BAError) in
            guard let task = try task(named: download.identifier) else {
                throw BAError(.downloadNotScheduled, message: "the download was not scheduled")
            }
            var state = task.state
            if task.isUnfinished {
                var change = TransferChange()
                change.state = .cancelled
                // Recorded before the request, because the event may arrive before the response.
                _ = cancelled.withLock { $0.insert(task.id) }
                do throws(ControlError) {
                    state = try client.change(task.id, by: change).state
                    if state == .cancelled { return }
                } catch .refused(let refusal) where Self.ends.contains(refusal.code) {
                    state = .completed
                } catch {
                    // If its event arrived meanwhile, the delegate did not receive it, so this call has cancelled it.
                    guard wasCancelledHere(task.id) else { return }
                    throw BAError(error)
                }
                guard wasCancelledHere(task.id) else { return }
            }
            guard state != .failed else {
                throw BAError(.downloadAlreadyFailed, message: "the download has failed already")
            }
            throw BAError(.downloadDoesNotExist, message: "the download has ended already")
        }
    }

    /// Returns whether this process has cancelled a task, and deletes the record.
    func wasCancelledHere(_ task: Int64) -> Bool {
        cancelled.withLock { $0.remove(task) != nil }
    }

    /// Records that a download has ended.
    func end(_ task: Int64) { known.withLock { $0.end(task) } }

    /// Calls `body`, which waits for the daemon, while no other thread of this process changes the download, so that
    /// two threads do not create the same one.
    private func withDownload(
        named identifier: String,
        _ body: () throws(BAError) -> Void
    ) throws(BAError) {
        identifiersInUse.wait { identifiers -> Void? in
            guard identifiers.count < Self.changeLimit else { return nil }
            return identifiers.insert(identifier).inserted ? () : nil
        }
        defer { identifiersInUse.change { _ = $0.remove(identifier) } }
        try body()
    }

    /// The refusals of a change of a task that has ended; the daemon forgets it when its event is acknowledged.
    private static let ends: Set<ControlRefusal.Code> = [.conflict, .notFound]

    /// Returns the task of an identifier: the running one, else the last one; ignores cancelled tasks.
    ///
    /// It has no header fields. The daemon lists the tasks of this identifier alone.
    private func task(named identifier: String) throws(BAError) -> TransferTask? {
        let token = DownloadNote.token(of: identifier)
        do throws(ControlError) {
            let tasks = try tasks(.tasks(in: client.identifier, named: token)).filter {
                $0.state != .cancelled && DownloadNote($0).identifier == identifier
            }
            return tasks.first(where: \.isUnfinished) ?? tasks.last
        } catch {
            throw BAError(error)
        }
    }

    /// Creates a task; that of a foreground download is promoted from the start, and fails instead of waiting.
    ///
    /// The daemon creates no task that it refuses. If the connection is lost, the task may exist: the next call finds it by its
    /// identifier.
    private func create(
        _ wire: ExtensionURLDownload,
        note: DownloadNote,
        isForeground: Bool = false
    ) throws(BAError) {
        guard !wire.headers.values.contains(TransferTask.hiddenValue) else {
            throw BAError(
                .downloadInvalid,
                message: "the daemon hides the header fields of this download from this process: "
                    + "create the download from its request again"
            )
        }
        var task = TransferRequest(wire, note: note)
        if isForeground {
            task.isPromoted = true
            task.failsWithoutRetry = true
        }
        let requests = [task]
        // The event of its end may arrive before the response.
        known.withLock { $0.beginCreation() }
        defer { known.withLock { $0.endCreation() } }
        do throws(ControlError) {
            let ids: [Int64]
            do throws(ControlError) {
                ids = try client.createTasks(requests)
            } catch .refused(let refusal) where refusal.code == .notFound {
                // The session was removed, or the daemon has lost its records.
                _ = try client.connect()
                ids = try client.createTasks(requests)
            }
            guard let id = ids.first else { throw .malformed("it has no number") }
            add(
                TransferTask(
                    id: id,
                    session: client.identifier,
                    user: UserIdentity.current.user,
                    request: requests[0],
                    state: .waiting,
                    created: .now
                )
            )
        } catch {
            throw BAError(error)
        }
    }
}
