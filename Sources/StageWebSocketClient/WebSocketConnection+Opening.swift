import StageTransfer
import StageWebSocket

extension WebSocketConnection {
    /// Connects, and performs the opening handshake.
    static func open(
        _ url: String,
        over engine: TransferEngine,
        options: WebSocketOptions
    ) async throws -> WebSocketConnection {
        let limit = options.handshakeTimeout
        let connection = try await withTimeLimit(limit) {
            do {
                return try await handshake(with: url, over: engine, options: options)
            } catch let error as TransferError {
                throw error == .cancelled
                    ? WebSocketClientError.cancelled : .connection(error)
            } catch let error as WebSocketError {
                throw WebSocketClientError.webSocket(error)
            }
        }
        if let connection { return connection }
        throw Task.isCancelled ? WebSocketClientError.cancelled : .slowHandshake(limit: limit)
    }

    private static func handshake(
        with url: String,
        over engine: TransferEngine,
        options: WebSocketOptions
    ) async throws -> WebSocketConnection {
        let bytes = try await engine.connect(
            to: httpURL(url),
            requiresNewestTLS: options.requiresNewestTLS
        )
        do {
            var fields = options.fields
            let hasOwn = fields.contains { $0.name.lowercased() == "authorization" }
            if let value = bytes.authorization, !hasOwn {
                fields.append(WebSocketField(name: "Authorization", value: value))
            }
            var handshake = try ClientHandshake(
                host: bytes.host,
                target: bytes.target,
                nonce: (0..<16).map { _ in UInt8.random(in: 0...255) },
                subprotocols: options.subprotocols,
                compression: options.compression,
                fields: fields
            )
            try await bytes.send(handshake.request)
            while true {
                let piece = try await bytes.receive()
                guard !piece.isEmpty else { throw WebSocketClientError.lost }
                let agreement: ClientHandshake.Agreement?
                do throws(WebSocketError) {
                    agreement = try handshake.receive(piece.span)
                } catch {
                    if let head = handshake.head { options.onResponse?(head) }
                    throw error
                }
                if let agreement {
                    options.onResponse?(agreement.head)
                    return WebSocketConnection(bytes, agreement: agreement, options: options)
                }
            }
        } catch {
            bytes.close()
            throw error
        }
    }

    /// Returns the http or https URL for a ws or wss URL.
    private static func httpURL(_ url: String) -> String {
        for (scheme, other) in [("wss://", "https://"), ("ws://", "http://")]
        where url.lowercased().hasPrefix(scheme) {
            return other + url.dropFirst(scheme.count)
        }
        return url
    }
}
