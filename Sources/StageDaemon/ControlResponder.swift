import Foundation
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import StageControl

/// Answers one request of a client.
struct ControlResponder: Sendable {
    let broker: Broker
    let version: String
    let logger: Logger

    /// What is answered.
    enum Answer: Sendable {
        case value(Data)
        case nothing
        case events(Subscription)
        case watch(Caller)
    }

    /// Answers a request.
    @concurrent func respond(
        _ request: Request,
        _ writer: consuming ResponseWriter,
        _ caller: Caller,
        _ channel: any Channel
    ) async throws {
        var request = request
        let answer: Answer
        do throws(ControlRefusal) {
            var caller = caller
            // The one request in which it matters what else the process is (``HandlerPolicy``).
            if request.method == .put { caller.peer = await PeerProcess(of: channel) }
            answer = try await self.answer(&request, caller)
        } catch {
            logger.debug("A request was refused", metadata: ["control.reason": "\(error)"])
            let body = (try? ControlFormat.encode(error)) ?? Data()
            try await write(body, error.code.status, writer)
            return
        }
        switch answer {
        case .value(let body): try await write(body, .ok, writer)
        case .nothing: try await writer.writeResponse(HTTPResponse(status: .noContent))
        case .events(let subscription):
            channel.closeFuture.whenComplete { _ in subscription.end() }
            do {
                try await stream(subscription, writer)
            } catch {
                await broker.detach(subscription)
                throw error
            }
            await broker.detach(subscription)
        case .watch(let caller): try await watch(caller, writer, channel)
        }
    }

    @concurrent private func write(
        _ body: Data,
        _ status: HTTPResponse.Status,
        _ writer: consuming ResponseWriter
    ) async throws {
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
        _ request: inout Request,
        _ caller: Caller
    ) async throws(ControlRefusal) -> Answer {
        var caller = caller
        let query = request.uri.queryParameters
        if query["all"] == "1" {
            guard caller.user == 0 else {
                throw ControlRefusal(.forbidden, "only the superuser sees what is everybody's")
            }
            caller.wantsAll = true
        }
        let path = request.uri.path.split(separator: "/").map(String.init)
        guard path.first == ControlFormat.version else {
            throw ControlRefusal(.notFound, "expected a path below '/\(ControlFormat.version)/'")
        }
        let names = path.dropFirst().map { $0.removingPercentEncoding ?? $0 }
        switch (request.method, names.first, names.count) {
        case (.get, nil, 0): return .encoding(await broker.status(caller, version))
        case (.get, "sessions", 1): return .encoding(await broker.sessions(caller))
        case (.get, "tasks", 1): return .encoding(try await broker.tasks(of: nil, caller))
        case (.get, "events", 1): return .watch(caller)
        case (_, "tasks", 2):
            guard let id = Int64(names[1]) else {
                throw ControlRefusal(.malformed, "expected the number of a task")
            }
            return try await answer(&request, task: id, caller)
        case (_, "sessions", 2...3):
            return try await answer(
                &request,
                session: names[1],
                names.count == 3 ? names[2] : nil,
                caller
            )
        default:
            throw ControlRefusal(.notFound, "there is no '\(request.method) \(request.uri.path)'")
        }
    }

    private func answer(
        _ request: inout Request,
        task id: Int64,
        _ caller: Caller
    ) async throws(ControlRefusal) -> Answer {
        switch request.method {
        case .get: return .encoding(try await broker.task(id, caller))
        case .patch:
            let change = try await body(TransferChange.self, of: &request)
            return .encoding(try await broker.change(id, change, caller))
        default: throw ControlRefusal(.notFound, "a task takes GET and PATCH")
        }
    }

    private func answer(
        _ request: inout Request,
        session id: String,
        _ part: String?,
        _ caller: Caller
    ) async throws(ControlRefusal) -> Answer {
        switch (request.method, part) {
        case (.put, nil):
            let wanted = try await body(SessionConfiguration.self, of: &request)
            return .encoding(try await broker.makeSession(id, wanted, caller))
        case (.get, nil): return .encoding(try await broker.session(id, caller).status(for: caller))
        case (.delete, nil):
            try await broker.removeSession(id, caller)
            return .nothing
        case (.post, "tasks"):
            let message = try await body(NewTasks.self, of: &request)
            return .encoding(try await broker.create(message, in: id, caller))
        case (.get, "tasks"): return .encoding(try await broker.tasks(of: id, caller))
        case (.get, "events"):
            let query = request.uri.queryParameters
            return .events(
                try await broker.attach(
                    id,
                    after: query["after"].flatMap { Int64($0) },
                    launch: query["launch"].map(String.init),
                    caller
                )
            )
        case (.post, "acknowledge"):
            let message = try await body(Acknowledgement.self, of: &request)
            try await broker.acknowledge(message, of: id, caller)
            return .nothing
        case (.post, "extend"):
            try await broker.extend(id, caller)
            return .nothing
        default:
            throw ControlRefusal(.notFound, "there is no '\(request.method) \(request.uri.path)'")
        }
    }

    private func body<Value: Decodable>(
        _ type: Value.Type,
        of request: inout Request
    ) async throws(ControlRefusal) -> Value {
        let buffer: ByteBuffer
        do {
            buffer = try await request.collectBody(upTo: ControlFormat.bodyLimit)
        } catch {
            throw ControlRefusal(
                .tooLarge,
                "expected a body of at most \(ControlFormat.bodyLimit) bytes, whole"
            )
        }
        do {
            return try ControlFormat.decode(type, from: Data(buffer.readableBytesView))
        } catch let error as DecodingError {
            throw ControlRefusal(.malformed, error.fragment)
        } catch {
            throw ControlRefusal(.malformed, "expected JSON: \(error)")
        }
    }
}

extension ControlResponder {
    /// Writes the events of a session for as long as the client listens.
    @concurrent private func stream(
        _ subscription: Subscription,
        _ writer: consuming ResponseWriter
    ) async throws {
        var body = try await writer.writeHead(Self.streamHead)
        try await body.write(Self.line(SessionEvent(.attached, time: .now)))
        async let _: Void = Self.beat { subscription.pass($0) }
        for await _ in subscription.wakes {
            while case let events = try await broker.read(subscription), !events.isEmpty {
                var buffer = ByteBuffer()
                for event in events { buffer.writeImmutableBuffer(try Self.line(event)) }
                try await body.write(buffer)
            }
        }
        try await body.finish(nil)
    }

    /// Writes what happens in all sessions that a caller sees, for as long as the client listens.
    @concurrent private func watch(
        _ caller: Caller,
        _ writer: consuming ResponseWriter,
        _ channel: any Channel
    ) async throws {
        let watch = await broker.watch(caller)
        channel.closeFuture.whenComplete { _ in watch.continuation.finish() }
        var body = try await writer.writeHead(Self.streamHead)
        async let _: Void = Self.beat { watch.continuation.yield($0) }
        do {
            try await body.write(Self.line(SessionEvent(.attached, time: .now)))
            for await event in watch.events { try await body.write(Self.line(event)) }
        } catch {
            await broker.unwatch(watch.id)
            throw error
        }
        await broker.unwatch(watch.id)
        try await body.finish(nil)
    }

    private static let streamHead = HTTPResponse(
        status: .ok,
        headerFields: [.contentType: "application/x-ndjson", .cacheControl: "no-store"]
    )

    private static func line(_ event: SessionEvent) throws -> ByteBuffer {
        ByteBuffer(bytes: try ControlFormat.encode(event) + [0x0A])
    }

    /// Says from time to time that a stream is alive, until the task is cancelled.
    private static func beat(_ send: @Sendable (SessionEvent) -> Void) async {
        while (try? await Task.sleep(for: ControlFormat.heartbeat)) != nil {
            send(SessionEvent(.heartbeat, time: .now))
        }
    }
}

extension ControlResponder.Answer {
    /// The answer that is a value.
    fileprivate static func encoding(_ value: some Encodable) -> Self {
        guard let data = try? ControlFormat.encode(value) else {
            preconditionFailure("a message is always JSON")
        }
        return .value(data)
    }
}

extension ControlRefusal.Code {
    /// The status of HTTP that goes with the reason.
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
