import StageControl
import StageExtension
import StageModel
import Synchronization

/// The downloads of an application group, which are the tasks of one session of the daemon.
///
/// Speaks StageControl's language and not BackgroundTransfer's: a session there keeps tasks until there is
/// a daemon, where Apple's manager throws at once, and takes events in from its beginning, where files
/// stay with the daemon here until there is a delegate. Its calls block.
final class DownloadSession: Sendable {
    /// The group.
    let group: ApplicationGroupID
    private let environment: [String: String]
    /// Directory of finished downloads of the daemon that was asked last.
    private let staged = Mutex<StagedDirectory?>(nil)
    /// Held from looking whether a download is there until it is; has the tasks that were cancelled here.
    private let cancelled = Mutex<Set<Int64>>([])

    /// Creates the session of a group, which the daemon may not have yet.
    init(_ group: ApplicationGroupID, environment: [String: String]) {
        self.group = group
        self.environment = environment
    }

    /// The identifier of the session.
    var identifier: String { "backgroundassets/\(group)" }

    /// Asks the daemon that there is now.
    func ask<Answer>(_ request: ControlRequest<Answer>) throws(ControlError) -> Answer {
        try find().answer(to: request, patience: ControlClient.usualPatience)
    }

    private func find() throws(ControlError) -> ControlClient {
        let client = try ControlClient.find(environment: environment)
        staged.withLock { $0 = client.staged }
        return client
    }

    /// Whether the file of a finished download is where the daemon leaves this user's.
    func accepts(_ location: String) -> Bool {
        staged.withLock { $0 }?.accepts(location) ?? false
    }

    /// Attaches to the session.
    func openEvents(after sequence: Int64) throws(ControlError) -> ControlEvents {
        try find()
            .openEvents(.events(of: identifier, after: sequence))
    }

    /// Makes the session where there is none.
    @discardableResult
    func make() throws(ControlError) -> SessionStatus {
        var configuration = SessionConfiguration()
        configuration.isDiscretionary = true
        configuration.answersChallenges = true
        configuration.sendsLaunchEvents = false
        return try ask(.makeSession(identifier, configuration))
    }

    /// The tasks that have not ended, or of whose end no delegate has heard; none without a session.
    func tasks() throws(ControlError) -> [TransferTask] {
        do throws(ControlError) {
            return try ask(.tasks(in: identifier)).tasks
        } catch .refused(let refusal) where refusal.code == .notFound {
            return []
        }
    }

    /// The downloads that are under way, and those of whose end no delegate has heard.
    func downloads() throws(BAError) -> [BADownload] {
        let tasks: [TransferTask]
        do throws(ControlError) {
            tasks = try self.tasks()
        } catch {
            throw BAError(error)
        }
        return tasks.filter { $0.state != .cancelled }.map { BADownload.made(of: $0, for: group) }
    }

    /// Has a download made at a time of the daemon's choosing.
    func schedule(_ wire: ExtensionURLDownload, _ note: DownloadNote) throws(BAError) {
        try cancelled.withLock { _ throws(BAError) in
            guard try task(named: note.identifier)?.isUnfinished != true else {
                throw BAError(.downloadAlreadyScheduled, "the download was scheduled before")
            }
            _ = try create(wire, note)
        }
    }

    /// Has a download made now, the one that was scheduled where there is one.
    func start(_ wire: ExtensionURLDownload, _ note: DownloadNote) throws(BAError) {
        try cancelled.withLock { _ throws(BAError) in
            var note = note
            note.isForeground = true
            var promotion = TransferChange()
            promotion.promotes = true
            if let task = try task(named: note.identifier), task.isUnfinished {
                note = DownloadNote(task)
                note.isForeground = true
                promotion.description = note.text
                do throws(ControlError) {
                    _ = try ask(.change(task.id, promotion))
                    return
                } catch .refused(let refusal) where refusal.code == .conflict {
                    // It has ended meanwhile, and so it is begun anew.
                } catch {
                    throw BAError(error)
                }
            }
            let id = try create(wire, note)
            promotion.description = nil
            do throws(ControlError) {
                _ = try ask(.change(id, promotion))
            } catch .refused(let refusal) where refusal.code == .conflict {
                // Where it has ended already, its end is on its way.
            } catch {
                throw BAError(error)
            }
        }
    }

    /// Ends a download that goes on.
    func cancel(_ download: BADownload) throws(BAError) {
        try cancelled.withLock { cancelled throws(BAError) in
            guard let task = try task(named: download.identifier) else {
                throw BAError(.downloadNotScheduled, "the download was not scheduled")
            }
            var state = task.state
            if task.isUnfinished {
                var change = TransferChange()
                change.state = .cancelled
                // Before the daemon is told, since its event may be here before its answer.
                cancelled.insert(task.id)
                do throws(ControlError) {
                    state = try ask(.change(task.id, change)).state
                    if state == .cancelled { return }
                } catch .refused(let refusal) where [.conflict, .notFound].contains(refusal.code) {
                    state = .completed
                } catch {
                    cancelled.remove(task.id)
                    throw BAError(error)
                }
                cancelled.remove(task.id)
            }
            guard state != .failed else {
                throw BAError(.downloadAlreadyFailed, "the download has failed already")
            }
            throw BAError(.downloadDoesNotExist, "the download has ended already")
        }
    }

    /// Whether a task was cancelled by this process, and forgets that.
    func wasCancelledHere(_ task: Int64) -> Bool {
        cancelled.withLock { $0.remove(task) != nil }
    }

    /// The task of an identifier: the one that goes on, else the last; those cancelled do not count.
    private func task(named identifier: String) throws(BAError) -> TransferTask? {
        do throws(ControlError) {
            let tasks = try tasks().filter {
                $0.state != .cancelled && DownloadNote($0).identifier == identifier
            }
            return tasks.first(where: \.isUnfinished) ?? tasks.last
        } catch {
            throw BAError(error)
        }
    }

    private func create(
        _ wire: ExtensionURLDownload,
        _ note: DownloadNote
    ) throws(BAError) -> Int64 {
        let message = NewTasks([TransferRequest(wire, note)])
        do throws(ControlError) {
            try make()
            let request = ControlRequest.createTasks(message, in: identifier)
            let created: CreatedTasks
            do throws(ControlError) {
                created = try ask(request)
            } catch .lost {
                // It may have arrived: the same token again is the same task.
                created = try ask(request)
            }
            guard let id = created.ids.first else { throw .malformed("it has no number") }
            return id
        } catch {
            throw BAError(error)
        }
    }
}
