package import StageWebSocket

/// Server side of a WebSocket connection (RFC 6455), in a script of ``TestServer``.
package struct WebSocketPeer: ~Copyable {
    /// The connection, for bytes that are not frames and for an end without a close frame.
    package let wire: Wire
    private var machine = WebSocketMachine(role: .server)

    /// Accepts the opening handshake, with the first of `subprotocols` that the client offers.
    package init(_ wire: Wire, subprotocols: [String] = []) {
        self.wire = wire
        wire.send(wire.request.webSocketAnswer(subprotocols: subprotocols))
    }

    /// Waits for the next event; `nil` at the end of the connection.
    package mutating func next() -> WebSocketEvent? {
        while true {
            if let event = machine.nextEvent() {
                flush()
                return event
            }
            flush()
            // The server ends the connection (RFC 6455, section 7.1.1).
            if machine.isFinished { return nil }
            let bytes = wire.receive()
            guard !bytes.isEmpty else { return nil }
            machine.receive(bytes.span)
        }
    }

    /// Sends a message.
    package mutating func send(_ message: WebSocketMessage) {
        // A closed connection accepts no messages.
        try? machine.send(message)
        flush()
    }

    /// Sends a close frame, with no code for `nil`.
    package mutating func close(_ code: UInt16?, reason: String = "") {
        let code = code.map { CloseCode(rawValue: $0) }
        machine.close(WebSocketClose(code: code, reason: reason))
        flush()
    }

    /// Sends each message back until the connection ends.
    package mutating func echo() {
        while let event = next() {
            if case .message(let message) = event { send(message) }
        }
    }

    /// Reads until the connection ends.
    package mutating func waitForEnd() { while next() != nil {} }

    private mutating func flush() {
        let output = machine.takeOutput()
        if !output.isEmpty { wire.send(output) }
    }
}

extension RequestHead {
    /// Returns the head of the response to an opening handshake, which accepts it without compression.
    package func webSocketAnswer(subprotocols: [String] = []) -> [UInt8] {
        let names = [
            "host", "upgrade", "connection", "sec-websocket-key", "sec-websocket-version",
            "sec-websocket-protocol",
        ]
        let head = HTTPHead(
            line: "GET \(target) HTTP/1.1",
            fields: names.compactMap { name in
                self[name].map { WebSocketField(name: name, value: $0) }
            }
        )
        switch ServerHandshake(subprotocols: subprotocols, compression: nil).answer(to: head) {
        case .accept(let head, _, _), .refuse(let head): return head.bytes
        }
    }
}

extension Answer {
    /// Accepts the opening handshake of a WebSocket connection, and closes the connection when `script` returns.
    package static func webSocket(
        subprotocols: [String] = [],
        _ script: @escaping @Sendable (inout WebSocketPeer) -> Void
    ) -> Answer {
        .script { wire in
            var peer = WebSocketPeer(wire, subprotocols: subprotocols)
            script(&peer)
        }
    }
}
