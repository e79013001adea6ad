import Foundation
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import StageControl
import StageModel
import StageSystem

/// Handles the requests of a client.
struct ControlResponder: Sendable {
    let broker: Broker
    let version: String
    let logger: Logger

    /// Response to a request.
    enum Answer: Sendable {
        case value(Data)
        case nothing
        case sessions([SessionStatus])
        case tasks([TransferTask], rest: TaskListing?)
        case events(Subscription)
        case watch(Caller)
    }

    /// Handles a request, and writes the response.
    @concurrent func respond(
        _ request: Request,
        _ writer: consuming ResponseWriter,
        _ client: Client
    ) async throws {
        client.beginRequest()
        defer { client.endRequest() }
        let answer: Answer
        do throws(ControlRefusal) {
            answer = try await self.answer(request, client)
        } catch {
            logger.debug("A request was refused", metadata: ["control.reason": "\(error)"])
            let body = (try? ControlFormat.encode(error)) ?? Data()
            try await write(body, error.code.status, writer, client)
            return
        }
        switch answer {
        case .value(let body): try await write(body, .ok, writer, client)
        case .nothing:
            client.mustRead()
            try await writer.writeResponse(HTTPResponse(status: .noContent))
        case .sessions(let sessions): try await list(sessions, writer, client)
        case .tasks(let tasks, let rest): try await list(tasks, rest, writer, client)
        case .events(let subscription): try await attach(subscription, writer, client)
        case .watch(let caller): try await watch(caller, writer, client)
        }
    }

    @concurrent private func write(
        _ body: Data,
        _ status: HTTPResponse.Status,
        _ writer: consuming ResponseWriter,
        _ client: Client
    ) async throws {
        // The responses to pipelined requests wait until the client has read the earlier ones.
        client.mustRead()
        let head = HTTPResponse(
            status: status,
            headerFields: [
                .contentType: "application/json", .contentLength: "\(body.count + 1)",
            ]
        )
        try await writer.write(
            response: head,
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: body + [0x0A]))
        )
    }

    private func answer(
        _ request: Request,
        _ client: Client
    ) async throws(ControlRefusal) -> Answer {
        // Do not wait for bodies of these requests.
        if ![.put, .post, .patch].contains(request.method) { try await client.takeTurn() }
        let peer = client.peer
        var caller = Caller(
            identity: UserIdentity(user: peer.user, group: peer.group, groups: peer.groups),
            process: peer.process
        )
        // Handlers and uploads depend on further properties of the process; see ``HandlerPolicy``.
        if [.put, .post].contains(request.method) { caller.peer = await client.process() }
        let query = request.uri.queryParameters
        if query["all"] == "1" {
            guard caller.user == 0 else {
                throw ControlRefusal(.forbidden, "only root may see the sessions of all users")
            }
            caller.wantsAll = true
        }
        if query["headers"] == "1", request.method == .get {
            caller.peer = await client.process()
            caller.readsHeaders = await mayReadHeaders(caller)
        }
        if let owner = query["user"] {
            guard let user = UInt32(owner) else {
                throw ControlRefusal(.malformed, "expected the number of a user")
            }
            caller.owner = user
        }
        let path = request.uri.path.split(separator: "/").map(String.init)
        guard path.first == ControlFormat.version else {
            throw ControlRefusal(.notFound, "expected a path below '/\(ControlFormat.version)/'")
        }
        let names = path.dropFirst().map { $0.percentDecoded ?? $0 }
        switch (request.method, names.first, names.count) {
        case (.get, nil, 0): return .encoding(await broker.status(caller, version))
        case (.get, "sessions", 1): return .sessions(await broker.sessions(caller))
        case (.get, "tasks", 1): return try await tasks(of: nil, caller)
        case (.get, "events", 1):
            try client.beginStream()
            return .watch(caller)
        case (_, "tasks", 2):
            guard let id = Int64(names[1]) else {
                throw ControlRefusal(.malformed, "expected the number of a task")
            }
            return try await answer(request, task: id, caller, client)
        case (_, "sessions", 2...3):
            return try await answer(
                request,
                session: names[1],
                names.count == 3 ? names[2] : nil,
                caller,
                client
            )
        default: throw .noResource(request)
        }
    }

    /// Returns whether the client may receive header fields.
    ///
    /// They may contain credentials, which a confined process may be barred from.
    private func mayReadHeaders(_ caller: Caller) async -> Bool {
        await withBlockingThread { HandlerPolicy.restriction(of: caller) == nil }
    }

    private func tasks(
        of session: String?,
        _ caller: Caller
    ) async throws(ControlRefusal) -> Answer {
        let listing = try await broker.listing(of: session, caller)
        let (tasks, rest) = try await broker.page(of: listing)
        return .tasks(tasks, rest: rest)
    }

    private func answer(
        _ request: Request,
        task id: Int64,
        _ caller: Caller,
        _ client: Client
    ) async throws(ControlRefusal) -> Answer {
        switch request.method {
        case .get: return .encoding(try await broker.task(id, caller))
        case .patch:
            let change = try await body(TransferChange.self, of: request, client)
            return .encoding(try await broker.change(id, change, caller))
        default: throw ControlRefusal(.notFound, "a task supports GET and PATCH")
        }
    }

    private func answer(
        _ request: Request,
        session id: String,
        _ part: String?,
        _ caller: Caller,
        _ client: Client
    ) async throws(ControlRefusal) -> Answer {
        switch (request.method, part) {
        case (.put, nil):
            let wanted = try await body(SessionConfiguration.self, of: request, client)
            return .encoding(try await broker.makeSession(id, wanted, caller))
        case (.get, nil): return .encoding(try await broker.status(of: id, caller))
        case (.delete, nil):
            try await broker.removeSession(id, caller)
            return .nothing
        case (.post, "tasks"):
            let message = try await body(NewTasks.self, of: request, client)
            return .encoding(try await broker.create(message, in: id, caller))
        case (.patch, "tasks"):
            let message = try await body(TaskChanges.self, of: request, client)
            return .encoding(try await broker.change(message, in: id, caller))
        case (.get, "tasks"): return try await tasks(of: id, caller)
        case (.get, "events"):
            let query = request.uri.queryParameters
            let after = try RequestLimits.sequence(query["after"].map(String.init))
            let launch = query["launch"].map(String.init)
            try RequestLimits.check(launch: launch)
            try client.beginStream()
            return .events(try await broker.attach(id, after: after, launch: launch, caller))
        case (.post, "acknowledge"):
            let message = try await body(Acknowledgement.self, of: request, client)
            try await broker.acknowledge(message, of: id, caller)
            return .nothing
        case (.post, "extend"):
            try await client.takeTurn()
            try await broker.extend(id, caller)
            return .nothing
        default: throw .noResource(request)
        }
    }

    private func body<Value: Decodable>(
        _ type: Value.Type,
        of request: Request,
        _ client: Client
    ) async throws(ControlRefusal) -> Value {
        let data = Data((try await body(of: request, client)).readableBytesView)
        try await client.takeTurn()
        do {
            return try ControlFormat.decode(type, from: data)
        } catch let error as DecodingError {
            throw ControlRefusal(.malformed, error.fragment)
        } catch {
            throw ControlRefusal(.malformed, "expected JSON: \(error)")
        }
    }

    /// Reads the body of a request; it counts against the memory limit of its user until the response is written.
    private func body(
        of request: Request,
        _ client: Client
    ) async throws(ControlRefusal) -> ByteBuffer {
        let limit = ControlFormat.bodyLimit
        var content = ByteBuffer()
        var parts = request.body.makeAsyncIterator()
        while true {
            let part: ByteBuffer?
            do {
                part = try await parts.next()
            } catch {
                throw ControlRefusal(.malformed, "expected a complete body")
            }
            guard let part else { return content }
            let count = content.readableBytes + part.readableBytes
            guard count <= limit else {
                throw ControlRefusal(
                    .tooLarge,
                    "expected a body of at most \(limit.quantity(of: "byte"))"
                )
            }
            try client.hold(body: count)
            content.writeImmutableBuffer(part)
        }
    }
}

extension ControlRefusal {
    /// Refusal of an unknown method or path.
    fileprivate static func noResource(_ request: Request) -> Self {
        Self(.notFound, "there is no '\(request.method) \(request.uri.path.prefix(256))'")
    }
}

extension ControlResponder.Answer {
    /// Returns the response that consists of a JSON value.
    fileprivate static func encoding(_ value: some Encodable) -> Self {
        guard let data = try? ControlFormat.encode(value) else {
            preconditionFailure("a message can always be encoded")
        }
        return .value(data)
    }
}

extension ControlRefusal.Code {
    /// HTTP status of the refusal.
    fileprivate var status: HTTPResponse.Status {
        switch self {
        case .malformed: .badRequest
        case .invalid: .unprocessableContent
        case .forbidden: .forbidden
        case .notFound: .notFound
        case .conflict: .conflict
        case .quota: .tooManyRequests
        case .tooLarge: .contentTooLarge
        case .storage: .init(code: 507, reasonPhrase: "Insufficient Storage")
        case .unavailable: .serviceUnavailable
        }
    }
}
