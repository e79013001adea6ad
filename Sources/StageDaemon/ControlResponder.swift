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
    let coordinator: TransferCoordinator
    let version: String
    let logger: Logger

    /// Response to a request.
    enum Answer: Sendable {
        case value(Data)
        case metrics(String)
        case nothing
        case sessions([SessionStatus])
        case tasks([TransferTask], rest: TaskListing?)
        case events(Subscription)
        case watch(ClientCredentials)
    }

    /// Handles a request, and writes the response.
    @concurrent func respond(
        to request: Request,
        with writer: consuming ResponseWriter,
        over connection: ClientConnection
    ) async throws {
        defer { connection.endRequest() }
        let answer: Answer
        do throws(ControlRefusal) {
            answer = try await self.answer(to: request, over: connection)
        } catch {
            logger.debug("A request was refused", metadata: ["control.reason": "\(error)"])
            let body = (try? ControlFormat.encode(error)) ?? Data()
            try await write(body + [0x0A], status: error.code.status, to: writer)
            return
        }
        switch answer {
        case .value(let body): try await write(body + [0x0A], status: .ok, to: writer)
        case .metrics(let text):
            let type = MetricsText.contentType
            try await write(Data(text.utf8), status: .ok, type: type, to: writer)
        case .nothing:
            try await writer.writeResponse(HTTPResponse(status: .noContent))
        case .sessions(let sessions): try await list(sessions, to: writer)
        case .tasks(let tasks, let rest):
            try await list(tasks, rest: rest, to: writer)
        case .events(let subscription): try await attach(subscription, to: writer, over: connection)
        case .watch(let client): try await watch(for: client, to: writer, over: connection)
        }
    }

    @concurrent private func write(
        _ body: Data,
        status: HTTPResponse.Status,
        type: String = "application/json",
        to writer: consuming ResponseWriter
    ) async throws {
        let head = HTTPResponse(
            status: status,
            headerFields: [.contentType: type, .contentLength: "\(body.count)"]
        )
        try await writer.write(
            response: head,
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: body))
        )
    }

    private func answer(
        to request: Request,
        over connection: ClientConnection
    ) async throws(ControlRefusal) -> Answer {
        guard !request.uri.hasLongCombiningSequence else {
            throw ControlRefusal(
                .malformed,
                message: "expected at most \(CombiningSequence.limit) combining characters in a row"
            )
        }
        // Requests without a body are admitted now, the others after their body has arrived.
        if ![.put, .post, .patch].contains(request.method) {
            try await connection.waitForAdmission()
        }
        let client = try await credentials(of: request, over: connection)
        let path = request.uri.path.split(separator: "/").map(String.init)
        guard path.first == ControlFormat.version else {
            throw ControlRefusal(
                .notFound,
                message: "expected a path below '/\(ControlFormat.version)/'"
            )
        }
        let names = path.dropFirst().map { $0.percentDecoded ?? $0 }
        switch (request.method, names.first, names.count) {
        case (.get, nil, 0):
            return .encoding(await coordinator.status(for: client, version: version))
        case (.get, "metrics", 1):
            return .metrics(try await coordinator.metrics(for: client, version: version))
        case (.get, "sessions", 1): return .sessions(await coordinator.sessions(for: client))
        case (.get, "tasks", 1): return try await tasks(of: nil, for: client)
        case (.get, "events", 1):
            try connection.beginStream()
            return .watch(client)
        case (_, "tasks", 2):
            guard let id = Int64(names[1]) else {
                throw ControlRefusal(.malformed, message: "expected the number of a task")
            }
            return try await answer(to: request, task: id, for: client, over: connection)
        case (_, "sessions", 2...3):
            return try await answer(
                to: request,
                session: names[1],
                part: names.count == 3 ? names[2] : nil,
                for: client,
                over: connection
            )
        default: throw .noResource(request)
        }
    }

    /// Returns the credentials of the client, with the options of its request.
    private func credentials(
        of request: Request,
        over connection: ClientConnection
    ) async throws(ControlRefusal) -> ClientCredentials {
        let peer = connection.peer
        var client = ClientCredentials(
            identity: UserIdentity(user: peer.user, group: peer.group, groups: peer.groups),
            process: peer.process
        )
        // Handlers and uploads depend on further properties of the process; see ``HandlerPolicy``.
        if [.put, .post].contains(request.method) { client.peer = await connection.process() }
        let query = request.uri.queryParameters
        if query["all"] == "1" {
            guard client.user == 0 else {
                throw ControlRefusal(
                    .forbidden,
                    message: "only root may see the sessions of all users"
                )
            }
            client.wantsAll = true
        }
        if query["headers"] == "1", request.method == .get {
            client.peer = await connection.process()
            client.readsHeaders = await mayReadHeaders(client)
        }
        if let owner = query["user"] {
            guard let user = UInt32(owner) else {
                throw ControlRefusal(.malformed, message: "expected the number of a user")
            }
            client.owner = user
        }
        return client
    }

    /// Returns whether the client may receive header fields.
    ///
    /// They may contain credentials, which a confined process may be barred from.
    private func mayReadHeaders(_ client: ClientCredentials) async -> Bool {
        await withBlockingThread { HandlerPolicy.restriction(of: client) == nil }
    }

    private func tasks(
        of session: String?,
        named token: String? = nil,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> Answer {
        let listing = try await coordinator.listing(of: session, named: token, for: client)
        let (tasks, rest) = try await coordinator.page(of: listing)
        return .tasks(tasks, rest: rest)
    }

    private func answer(
        to request: Request,
        task id: Int64,
        for client: ClientCredentials,
        over connection: ClientConnection
    ) async throws(ControlRefusal) -> Answer {
        switch request.method {
        case .get: return .encoding(try await coordinator.task(id, for: client))
        case .patch:
            let change = try await body(TransferChange.self, of: request, over: connection)
            return .encoding(try await coordinator.change(id, by: change, for: client))
        default: throw ControlRefusal(.notFound, message: "a task supports GET and PATCH")
        }
    }

    private func answer(
        to request: Request,
        session id: String,
        part: String?,
        for client: ClientCredentials,
        over connection: ClientConnection
    ) async throws(ControlRefusal) -> Answer {
        switch (request.method, part) {
        case (.put, nil):
            let wanted = try await body(SessionConfiguration.self, of: request, over: connection)
            return .encoding(
                try await coordinator.makeSession(id, configuration: wanted, for: client)
            )
        case (.get, nil): return .encoding(try await coordinator.status(of: id, for: client))
        case (.delete, nil):
            try await coordinator.removeSession(id, for: client)
            return .nothing
        case (.post, "tasks"):
            let message = try await body(NewTasks.self, of: request, over: connection)
            return .encoding(try await coordinator.create(message, in: id, for: client))
        case (.patch, "tasks"):
            let message = try await body(TaskChanges.self, of: request, over: connection)
            return .encoding(try await coordinator.change(message, in: id, for: client))
        case (.get, "tasks"):
            let token = request.uri.queryParameters["token"].map(String.init)
            try RequestLimits.check(listedToken: token)
            return try await tasks(of: id, named: token, for: client)
        case (.get, "events"):
            let query = request.uri.queryParameters
            let after = try RequestLimits.sequence(query["after"].map(String.init))
            let launch = query["launch"].map(String.init)
            try RequestLimits.check(launch: launch)
            try connection.beginStream()
            return .events(
                try await coordinator.attach(id, after: after, launch: launch, for: client)
            )
        case (.post, "acknowledge"):
            let message = try await body(Acknowledgement.self, of: request, over: connection)
            try await coordinator.acknowledge(message, of: id, for: client)
            return .nothing
        case (.post, "extend"):
            try await connection.waitForAdmission()
            try await coordinator.extend(id, for: client)
            return .nothing
        default: throw .noResource(request)
        }
    }

    private func body<Value: Decodable>(
        _ type: Value.Type,
        of request: Request,
        over connection: ClientConnection
    ) async throws(ControlRefusal) -> Value {
        let data = Data((try await body(of: request, over: connection)).readableBytesView)
        try await connection.waitForAdmission()
        do {
            try CombiningSequence.check(json: Array(data))
            return try ControlFormat.decode(type, from: data)
        } catch let error as DecodingError {
            throw ControlRefusal(.malformed, message: error.text(in: Array(data)))
        } catch {
            throw ControlRefusal(.malformed, message: "\(error)")
        }
    }

    /// Reads the body of a request; it counts against the memory limit of its user until the response is written.
    private func body(
        of request: Request,
        over connection: ClientConnection
    ) async throws(ControlRefusal) -> ByteBuffer {
        let limit = ControlFormat.bodyLimit
        var content = ByteBuffer()
        var parts = request.body.makeAsyncIterator()
        while true {
            let part: ByteBuffer?
            do {
                part = try await parts.next()
            } catch {
                throw ControlRefusal(.malformed, message: "expected a complete body")
            }
            guard let part else { return content }
            let count = content.readableBytes + part.readableBytes
            guard count <= limit else {
                throw ControlRefusal(
                    .tooLarge,
                    message: "expected a body of at most \(limit.quantity(of: "byte"))"
                )
            }
            try connection.reserveMemory(body: count)
            content.writeImmutableBuffer(part)
        }
    }
}

extension URI {
    /// `true` if the path or the query has too many combining characters in a row, which are slow to compare.
    fileprivate var hasLongCombiningSequence: Bool {
        CombiningSequence.exceedsLimit(in: string)
            || path.split(separator: "/").contains {
                CombiningSequence.exceedsLimit(in: $0.percentDecoded ?? "")
            }
            || queryParameters.contains { CombiningSequence.exceedsLimit(in: $0.value) }
    }
}

extension ControlRefusal {
    /// Refusal of an unknown method or path.
    fileprivate static func noResource(_ request: Request) -> Self {
        Self(.notFound, message: "there is no '\(request.method) \(request.uri.path.prefix(256))'")
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
