import Foundation
import StageControl
import StageExtension
import StageModel
import StageSystem
import Synchronization

/// The downloads of an application group, which are the tasks of one session of the daemon.
///
/// A session of BackgroundTransfer keeps tasks until there is a daemon, where Apple's manager throws at once, and
/// takes events in from its beginning, where files stay with the daemon here until there is a delegate. Both
/// share ``SessionClient`` and ``SessionConnection``. The calls block.
final class DownloadSession: Sendable {
    /// The group.
    let group: ApplicationGroupID
    /// The requests about the session.
    let client: SessionClient
    /// Held from looking whether a download is there until it is; has the tasks that were cancelled here.
    private let cancelled = Mutex<Set<Int64>>([])
    let known = Mutex(KnownDownloads())
    /// The connection of the delegate that there is.
    let connection = Mutex<SessionConnection?>(nil)

    /// Creates the session of a group, which the daemon may not have yet.
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

    /// Asks the daemon, for which the session needs not be there.
    func ask<Answer>(_ request: ControlRequest<Answer>) throws(ControlError) -> Answer {
        try client.answer(to: request, needsSession: false)
    }

    /// The tasks that have not ended, or of whose end no delegate has heard; none without a session.
    func tasks() throws(ControlError) -> [TransferTask] {
        do throws(ControlError) {
            return try ask(.tasks(in: client.identifier)).tasks
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
                    _ = try client.change(task.id, promotion)
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
                _ = try client.change(id, promotion)
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
                    state = try client.change(task.id, change).state
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

    /// Takes in that a download has ended, after the answer to the request that made it.
    func end(_ task: Int64) { cancelled.withLock { _ in known.withLock { $0.end(task) } } }

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
        do throws(ControlError) {
            let requests = [TransferRequest(wire, note)]
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
            return id
        } catch {
            throw BAError(error)
        }
    }
}
