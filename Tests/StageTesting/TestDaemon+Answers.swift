import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import Synchronization

extension TestDaemon {
    private static let nothing = Array("HTTP/1.1 204 No Content\r\n\r\n".utf8)

    /// Does what a request asks for, and returns the answer.
    func respond(_ head: RequestHead, _ body: Data) -> [UInt8] {
        let path = head.target.split(separator: "?")[0].split(separator: "/").map(String.init)
        do {
            return try state.withLock { state in
                switch (head.method, path.count, path.dropFirst().first) {
                case ("PUT", 3, "sessions"):
                    let rules = try ControlFormat.decode(SessionConfiguration.self, from: body)
                    return state.makeSession(path[2], rules)
                case ("GET", 3, "sessions"):
                    return state.sessions[path[2]].map { Self.answer(200, $0.status) }
                        ?? Self.missing
                case ("POST", 4, "sessions") where path[3] == "tasks":
                    let new = try ControlFormat.decode(NewTasks.self, from: body)
                    return state.create(new, in: path[2])
                case ("GET", 4, "sessions") where path[3] == "tasks":
                    return Self.answer(200, TaskList(state.unacknowledged(in: path[2])))
                case ("POST", 4, "sessions") where path[3] == "acknowledge":
                    let value = try ControlFormat.decode(Acknowledgement.self, from: body)
                    state.acknowledge(value, in: path[2])
                    return Self.nothing
                case ("GET", 3, "tasks"):
                    return state.tasks[Int64(path[2]) ?? 0].map { Self.answer(200, $0) }
                        ?? Self.missing
                case ("PATCH", 3, "tasks"):
                    let change = try ControlFormat.decode(TransferChange.self, from: body)
                    return state.change(Int64(path[2]) ?? 0, change)
                default: return Self.nothing
                }
            }
        } catch {
            return Self.answer(400, ControlRefusal(.malformed, "\(error)"))
        }
    }

    /// What the daemon says of itself.
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

    static let missing = answer(404, ControlRefusal(.notFound, "there is no such thing"))
}

extension TestDaemon.State {
    fileprivate mutating func makeSession(
        _ identifier: String,
        _ rules: SessionConfiguration
    ) -> [UInt8] {
        let new = SessionStatus(identifier: identifier, user: 0, configuration: rules)
        var session = sessions[identifier] ?? TestDaemon.Session(status: new)
        session.status.configuration = rules
        sessions[identifier] = session
        return TestDaemon.answer(200, session.status)
    }

    fileprivate mutating func create(_ new: NewTasks, in identifier: String) -> [UInt8] {
        guard sessions[identifier] != nil else { return TestDaemon.missing }
        let ids = new.tasks.map { request in
            let known = tasks.values.first {
                $0.session == identifier && $0.request.token == request.token
            }
            if let known { return known.id }
            lastTask += 1
            tasks[lastTask] = TransferTask(
                id: lastTask,
                session: identifier,
                user: 0,
                request: request,
                state: request.isSuspended == true ? .suspended : .waiting,
                created: .now
            )
            return lastTask
        }
        return TestDaemon.answer(200, CreatedTasks(ids))
    }

    fileprivate func unacknowledged(in identifier: String) -> [TransferTask] {
        let acknowledged = sessions[identifier]?.status.acknowledgedEvent ?? 0
        let ended = sessions[identifier]?.events
            .filter { $0.sequence ?? 0 <= acknowledged && $0.kind != .challenged }
            .compactMap(\.task)
        return tasks.values
            .filter { $0.session == identifier && !(ended ?? []).contains($0.id) }
            .sorted { $0.id < $1.id }
    }

    fileprivate mutating func acknowledge(_ value: Acknowledgement, in identifier: String) {
        sessions[identifier]?.status.acknowledgedEvent = value.sequence
        if let launch = value.launch { launches.append(launch) }
    }

    fileprivate mutating func change(_ id: Int64, _ change: TransferChange) -> [UInt8] {
        guard var task = tasks[id] else { return TestDaemon.missing }
        guard ![.completed, .failed, .cancelled].contains(task.state) else {
            return TestDaemon.answer(409, ControlRefusal(.conflict, "the task has ended"))
        }
        switch change.state {
        case .running: task.state = .waiting
        case .suspended: task.state = .suspended
        case .cancelled: task.state = .cancelled
        default: break
        }
        task.request.description = change.description ?? task.request.description
        task.request.priority = change.priority ?? task.request.priority
        tasks[id] = task
        return TestDaemon.answer(200, task)
    }
}
