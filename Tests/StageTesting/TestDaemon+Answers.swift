import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import Synchronization

extension TestDaemon {
    /// Performs a request, and returns the response.
    func respond(_ head: RequestHead, _ body: Data) -> [UInt8] {
        let path = head.target.split(separator: "?")[0].split(separator: "/").map(Self.decoded)
        do {
            return try state.withLock { state in
                switch (path.first, path.dropFirst().first, path.count) {
                case (ControlFormat.version, "sessions", 2) where head.method == "GET":
                    let sessions = state.sessions.values.map(\.status)
                    return Self.answer(
                        200,
                        SessionList(sessions.sorted { $0.number < $1.number })
                    )
                case (ControlFormat.version, "tasks", 2) where head.method == "GET":
                    return Self.answer(200, TaskList(state.tasks.values.sorted { $0.id < $1.id }))
                case (ControlFormat.version, "sessions", 3...4):
                    return try state.answer(
                        head,
                        session: path[2],
                        path.dropFirst(3).first,
                        body
                    )
                case (ControlFormat.version, "tasks", 3):
                    guard let id = Int64(path[2]) else {
                        return Self.answer(ControlRefusal(.malformed, message: "expected a number"))
                    }
                    return try state.answer(head.method, task: id, body)
                default: return Self.missing
                }
            }
        } catch {
            return Self.answer(ControlRefusal(.malformed, message: "\(error)"))
        }
    }

    /// The identity and state of the daemon.
    var status: ServiceStatus {
        ServiceStatus(
            version: "0",
            process: Int(ProcessInfo.processInfo.processIdentifier),
            user: UserIdentity.current.user,
            unfinishedTasks: 0,
            conditions: [:],
            staged: state.withLock { $0.staged }
        )
    }

    static let isMissing = ControlRefusal(.notFound, message: "there is no such thing")
    static let missing = answer(isMissing)
}

extension TestDaemon.State {
    fileprivate mutating func answer(
        _ head: RequestHead,
        session identifier: String,
        _ part: String?,
        _ body: Data
    ) throws -> [UInt8] {
        let method = head.method
        if method == "PUT", part == nil {
            let rules = try ControlFormat.decode(SessionConfiguration.self, from: body)
            return makeSession(identifier, rules)
        }
        guard let session = sessions[identifier] else { return TestDaemon.missing }
        switch (method, part) {
        case ("GET", nil): return TestDaemon.answer(200, status(of: session))
        case ("DELETE", nil):
            sessions[identifier] = nil
            tasks = tasks.filter { $0.value.session != identifier }
            return Self.nothing
        case ("POST", "tasks"):
            return create(try ControlFormat.decode(NewTasks.self, from: body), in: identifier)
        case ("PATCH", "tasks"):
            let message = try ControlFormat.decode(TaskChanges.self, from: body)
            return answer(message.changes, in: identifier)
        case ("GET", "tasks"):
            let own = tasks.values.filter {
                $0.session == identifier && Self.isListed($0, by: head)
            }
            return TestDaemon.answer(200, TaskList(own.sorted { $0.id < $1.id }))
        case ("POST", "acknowledge"):
            let value = try ControlFormat.decode(Acknowledgement.self, from: body)
            return acknowledge(value, in: identifier)
        case ("POST", "extend"):
            return TestDaemon.answer(ControlRefusal(.conflict, message: "no handler was started"))
        default: return TestDaemon.missing
        }
    }

    fileprivate mutating func answer(
        _ method: String,
        task id: Int64,
        _ body: Data
    ) throws -> [UInt8] {
        switch method {
        case "GET": return tasks[id].map { TestDaemon.answer(200, $0) } ?? TestDaemon.missing
        case "PATCH":
            let change = try ControlFormat.decode(TransferChange.self, from: body)
            do throws(ControlRefusal) {
                return TestDaemon.answer(200, try self.change(id, by: change))
            } catch {
                return TestDaemon.answer(error)
            }
        default: return TestDaemon.missing
        }
    }

    /// Returns whether the request lists the task: all tasks, or those whose tokens have a text as their first part.
    private static func isListed(_ task: TransferTask, by head: RequestHead) -> Bool {
        let query = head.target.split(separator: "?").dropFirst().first ?? ""
        let members = query.split(separator: "&")
        guard let member = members.first(where: { $0.hasPrefix("token=") }) else { return true }
        let token = TestDaemon.decoded(member.dropFirst("token=".count))
        return task.request.token == token || task.request.token.hasPrefix("\(token)/")
    }

    private static var nothing: [UInt8] { Array("HTTP/1.1 204 No Content\r\n\r\n".utf8) }

    private func status(of session: TestDaemon.Session) -> SessionStatus {
        var status = session.status
        status.unfinishedTasks = tasks.values
            .count { $0.session == status.identifier && !Self.hasEnded($0) }
        return status
    }

    private mutating func makeSession(
        _ identifier: String,
        _ rules: SessionConfiguration
    ) -> [UInt8] {
        var new = SessionStatus(
            identifier: identifier,
            user: UserIdentity.current.user,
            configuration: rules
        )
        lastSession += 1
        new.number = lastSession
        var session = sessions[identifier] ?? TestDaemon.Session(status: new)
        session.status.configuration = rules
        sessions[identifier] = session
        return TestDaemon.answer(200, status(of: session))
    }

    private mutating func create(_ new: NewTasks, in identifier: String) -> [UInt8] {
        let ids = new.tasks.map { request in
            let known = tasks.values.first {
                $0.session == identifier && $0.request.token == request.token
            }
            if let known { return known.id }
            lastTask += 1
            var task = TransferTask(
                id: lastTask,
                session: identifier,
                user: UserIdentity.current.user,
                request: request,
                state: .waiting,
                created: .now
            )
            if request.isSuspended == true { suspend(&task) }
            tasks[lastTask] = task
            return lastTask
        }
        return TestDaemon.answer(200, CreatedTasks(ids))
    }

    private func suspend(_ task: inout TransferTask) {
        task.state = .suspended
        task.pendingReasons = [PendingReason(.pausedByClient)]
    }

    private mutating func acknowledge(
        _ value: Acknowledgement,
        in identifier: String
    ) -> [UInt8] {
        guard let session = sessions[identifier], value.sequence <= session.status.lastEvent else {
            return TestDaemon.answer(ControlRefusal(.invalid, message: "there are fewer events"))
        }
        let acknowledged = max(value.sequence, session.status.acknowledgedEvent)
        let over = session.events.filter { $0.sequence ?? 0 <= acknowledged }
        for event in over where event.kind != .challenged {
            if let id = event.task { tasks[id] = nil }
        }
        if !repeatsEvents {
            sessions[identifier]?.events.removeAll { $0.sequence ?? 0 <= acknowledged }
        }
        sessions[identifier]?.status.acknowledgedEvent = acknowledged
        if let launch = value.launch { launches.append(launch) }
        return Self.nothing
    }

    private mutating func answer(
        _ changes: [TaskChange],
        in identifier: String
    ) -> [UInt8] {
        let refusals = changes.compactMap { item -> ChangedTasks.Refusal? in
            guard tasks[item.task]?.session == identifier else {
                return ChangedTasks.Refusal(item.task, refusal: TestDaemon.isMissing)
            }
            do throws(ControlRefusal) {
                _ = try change(item.task, by: item.change)
                return nil
            } catch {
                return ChangedTasks.Refusal(item.task, refusal: error)
            }
        }
        return TestDaemon.answer(200, ChangedTasks(refusals))
    }

    private mutating func change(
        _ id: Int64,
        by change: TransferChange
    ) throws(ControlRefusal) -> TransferTask {
        guard var task = tasks[id] else { throw TestDaemon.isMissing }
        // A change in a request with several changes is refused in the same way as a single one.
        if let refusal = refusals["PATCH /v1/tasks/\(id)"] { throw refusal }
        if Self.hasEnded(task) {
            guard change.state == .cancelled else {
                throw ControlRefusal(.conflict, message: "the task has ended")
            }
            return task
        }
        if let end = change.stagingEnd {
            guard task.request.kind == .staging else {
                throw ControlRefusal(.conflict, message: "the task is no staging")
            }
            return self.end(task, end)
        }
        let isAnswer = change.authorization != nil || change.rejectsChallenge == true
        guard !isAnswer || isChallenged(task) else {
            throw ControlRefusal(.conflict, message: "nothing was asked")
        }
        switch change.state {
        case .running: (task.state, task.pendingReasons) = (.waiting, [])
        case .suspended: suspend(&task)
        case .cancelled:
            var event = SessionEvent(.cancelled, time: .now)
            event.task = id
            emit(event, in: task.session)
            task.state = .cancelled
        default: break
        }
        task.request.description = change.description ?? task.request.description
        task.request.priority = change.priority ?? task.request.priority
        if change.promotes == true { task.request.isPromoted = true }
        task.request.failsWithoutRetry =
            change.failsWithoutRetry ?? task.request.failsWithoutRetry
        tasks[id] = task
        return task
    }

    private mutating func end(_ staging: TransferTask, _ end: StagingEnd) -> TransferTask {
        var task = staging
        if let failure = end.failure, let reason = end.pendingReason {
            task.state = .waiting
            task.pendingReasons = [PendingReason(reason, problem: failure.reason)]
        } else {
            var event = SessionEvent(end.failure == nil ? .completed : .failed, time: .now)
            event.task = task.id
            event.failure = end.failure
            emit(event, in: task.session)
            task.state = end.failure == nil ? .completed : .failed
        }
        task.lastProblem = end.failure?.reason
        tasks[task.id] = task
        return task
    }

    private func isChallenged(_ task: TransferTask) -> Bool {
        sessions[task.session]?.events.contains { $0.task == task.id && $0.kind == .challenged }
            ?? false
    }

    private static func hasEnded(_ task: TransferTask) -> Bool {
        [.completed, .failed, .cancelled].contains(task.state)
    }

    /// Makes an event happen, and returns it with its number if it is durable.
    @discardableResult
    mutating func emit(_ event: SessionEvent, in identifier: String) -> SessionEvent {
        var event = event
        if let id = event.task, let bytes = event.bytesReceived { tasks[id]?.bytesReceived = bytes }
        if let id = event.task, let reasons = event.pendingReasons {
            tasks[id]?.pendingReasons = reasons
        }
        if [.challenged, .completed, .failed, .cancelled].contains(event.kind) {
            sessions[identifier]?.status.lastEvent += 1
            event.sequence = sessions[identifier]?.status.lastEvent
            sessions[identifier]?.events.append(event)
            if let id = event.task {
                switch event.kind {
                case .completed: tasks[id]?.state = .completed
                case .failed: tasks[id]?.state = .failed
                case .cancelled: tasks[id]?.state = .cancelled
                default: break
                }
            }
        }
        if let listener = sessions[identifier]?.listener { TestDaemon.send(event, to: listener) }
        return event
    }
}
