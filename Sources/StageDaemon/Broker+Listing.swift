import FoundationEssentials
import StageControl

/// The part of a list of tasks that was not sent yet.
struct TaskListing: Sendable {
    /// The sessions that are left, the one that is being told first.
    fileprivate var sessions: ArraySlice<Int64>
    /// The last task that was told.
    fileprivate var last: Int64 = 0
}

extension Broker {
    /// Begins a list of the tasks of one session, or of all that the caller sees.
    func listing(
        of identifier: String?,
        _ caller: Caller
    ) throws(ControlRefusal) -> TaskListing {
        if let identifier {
            return TaskListing(sessions: [try session(identifier, caller).record.id])
        }
        let seen = sessions.values.filter { caller.sees($0.record) }.map(\.record.id)
        return TaskListing(sessions: seen.sorted()[...])
    }

    /// The next tasks of a list, and what is left of it; `nil` if nothing is.
    func page(
        of listing: TaskListing
    ) async throws(ControlRefusal) -> ([TransferTask], rest: TaskListing?) {
        var listing = listing
        while let session = listing.sessions.first {
            let tasks: [FullTask]
            let isLast: Bool
            do throws(DaemonError) {
                (tasks, isLast) = try await journal.tasks(of: session, after: listing.last)
            } catch {
                throw ControlRefusal(.storage, "\(error)")
            }
            listing.last = tasks.last?.record.id ?? 0
            if isLast {
                listing.sessions.removeFirst()
                listing.last = 0
            }
            guard tasks.isEmpty else {
                return (tasks.map(describe), listing.sessions.isEmpty ? nil : listing)
            }
        }
        return ([], nil)
    }
}

extension Broker {
    /// Cancels a task, and returns it as it is then.
    func cancel(
        _ task: FullTask,
        _ keepsContent: Bool,
        _ caller: Caller
    ) async throws(ControlRefusal) -> TransferTask {
        var answer = describe(task)
        let id = task.record.id
        scheduler.remove(id)
        await stop(id)
        var event = SessionEvent(.cancelled, time: .now)
        event.response = extras[id]?.response
        if task.request.kind == .download { event.bytesReceived = extras[id]?.received }
        if task.request.kind == .upload { event.bytesSent = extras[id]?.sent }
        event.bytesExpected = task.request.size ?? extras[id]?.total
        let remnant = keepsContent ? remnant(of: task) : nil
        event.resumeToken = remnant?.token
        await conclude(
            [(id, event)],
            leaving: remnant,
            removing: remnant == nil ? task.record.part : nil
        )
        // A transient session is gone with its last task.
        guard sessions[task.record.session] == nil else { return try await self.task(id, caller) }
        (answer.state, answer.holds) = (.cancelled, [])
        return answer
    }

    /// Tells why a task waits, if it does.
    func tellHolds(of id: Int64, at now: Date) {
        let holds = holds(of: id, at: now)
        guard !holds.isEmpty else { return }
        tell(.changed, id) { event in
            event.state = .waiting
            event.holds = holds
        }
    }
}
