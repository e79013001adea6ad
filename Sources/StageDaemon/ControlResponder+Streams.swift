import FoundationEssentials
import HTTPTypes
import HummingbirdCore
import NIOCore
import StageControl

extension ControlResponder {
    /// Writes a list of sessions in pieces: a thousand sessions with all their header fields take 64 MiB.
    @concurrent func list(
        _ sessions: [SessionStatus],
        to writer: consuming ResponseWriter
    ) async throws {
        let head = HTTPResponse(status: .ok, headerFields: [.contentType: "application/json"])
        var body = try await writer.writeHead(head)
        var buffer = ByteBuffer(string: "{\"sessions\":[")
        for (index, session) in sessions.enumerated() {
            if index > 0 { buffer.writeString(",") }
            buffer.writeBytes(try ControlFormat.encode(session))
            guard buffer.readableBytes >= Journal.pageBytes else { continue }
            for piece in Self.pieces(of: buffer) {
                try await body.write(piece)
            }
            buffer = ByteBuffer()
        }
        buffer.writeString("]}\n")
        for piece in Self.pieces(of: buffer) {
            try await body.write(piece)
        }
        try await body.finish(nil)
    }

    /// Writes a list of tasks page by page, so that its memory does not grow with the list.
    @concurrent func list(
        _ tasks: [TransferTask],
        rest: TaskListing?,
        to writer: consuming ResponseWriter
    ) async throws {
        let head = HTTPResponse(status: .ok, headerFields: [.contentType: "application/json"])
        var body = try await writer.writeHead(head)
        var (page, rest) = (tasks, rest)
        var buffer = ByteBuffer(string: "{\"tasks\":[")
        var hasTasks = false
        while true {
            for task in page {
                if hasTasks { buffer.writeString(",") }
                buffer.writeBytes(try ControlFormat.encode(task))
                hasTasks = true
            }
            guard let next = rest else { break }
            for piece in Self.pieces(of: buffer) {
                try await body.write(piece)
            }
            buffer = ByteBuffer()
            (page, rest) = try await coordinator.page(of: next)
        }
        buffer.writeString("]}\n")
        for piece in Self.pieces(of: buffer) {
            try await body.write(piece)
        }
        try await body.finish(nil)
    }

    /// Bytes of a response that are written at once.
    ///
    /// They are few enough for a client that reads slowly but steadily to stay connected.
    private static let pieceBytes = 32 << 10

    /// Splits a part of a response into pieces that are written one by one.
    private static func pieces(of buffer: ByteBuffer) -> [ByteBuffer] {
        var rest = buffer
        var pieces: [ByteBuffer] = []
        while let piece = rest.readSlice(length: min(rest.readableBytes, pieceBytes)),
            piece.readableBytes > 0
        {
            pieces.append(piece)
        }
        return pieces
    }

    /// Writes the events of a session until the client disconnects.
    @concurrent func attach(
        _ subscription: Subscription,
        to writer: consuming ResponseWriter,
        over connection: ClientConnection
    ) async throws {
        connection.whenClosed { subscription.end() }
        do {
            try await stream(subscription, to: writer)
        } catch {
            await coordinator.detach(subscription)
            throw error
        }
        await coordinator.detach(subscription)
    }

    @concurrent private func stream(
        _ subscription: Subscription,
        to writer: consuming ResponseWriter
    ) async throws {
        var body = try await writer.writeHead(Self.streamHead)
        var attached = SessionEvent(.attached, time: .now)
        attached.sessionNumber = subscription.session
        try await body.write(Self.line(attached))
        async let _: Void = Self.sendHeartbeats { subscription.enqueue($0) }
        for await _ in subscription.wakes {
            while case let events = try await coordinator.read(subscription), !events.isEmpty {
                var buffer = ByteBuffer()
                for event in events { buffer.writeImmutableBuffer(try Self.line(event)) }
                for piece in Self.pieces(of: buffer) {
                    try await body.write(piece)
                }
            }
        }
        try await body.finish(nil)
    }

    /// Writes the events of all sessions that are visible to the client, until it disconnects.
    @concurrent func watch(
        for client: ClientCredentials,
        to writer: consuming ResponseWriter,
        over connection: ClientConnection
    ) async throws {
        let watch = coordinator.feed.watch(for: client)
        connection.whenClosed { watch.end() }
        do {
            var body = try await writer.writeHead(Self.streamHead)
            try await body.write(Self.line(SessionEvent(.attached, time: .now)))
            async let _: Void = Self.sendHeartbeats { watch.enqueue($0) }
            for await _ in watch.wakes {
                while let event = watch.next() { try await body.write(Self.line(event)) }
            }
            try await body.finish(nil)
        } catch {
            coordinator.feed.unwatch(watch)
            throw error
        }
        coordinator.feed.unwatch(watch)
    }

    private static let streamHead = HTTPResponse(
        status: .ok,
        headerFields: [.contentType: "application/x-ndjson", .cacheControl: "no-store"]
    )

    private static func line(_ event: SessionEvent) throws -> ByteBuffer {
        ByteBuffer(bytes: try ControlFormat.encode(event) + [0x0A])
    }

    /// Sends heartbeat events until the task is cancelled.
    private static func sendHeartbeats(_ send: @Sendable (SessionEvent) -> Void) async {
        while (try? await Task.sleep(for: ControlFormat.heartbeat)) != nil {
            send(SessionEvent(.heartbeat, time: .now))
        }
    }
}
