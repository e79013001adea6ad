import StageWebSocket

/// Frames and messages of WebSocket connections, and the heads of their handshakes.
///
/// - The first byte selects the side and the compression; the others are the bytes from the peer.
/// - The events and the output do not depend on the pieces in which the bytes arrive.
/// - No message is larger than the limit, and no event follows a close or a failure.
/// - Bytes that are sent as a message arrive as that message.
enum WebSocketTarget: FuzzTarget {
    private struct Outcome: Equatable {
        var events: [WebSocketEvent] = []
        var output: [UInt8] = []
    }

    private static let limits = WebSocketLimits(messageSize: 1 << 16, emptyFragments: 8)
    private static let client = WebSocketMachine.Role.client { 0x0102_0304 }

    static func test(_ bytes: [UInt8]) {
        guard let first = bytes.first else { return }
        let rest = Array(bytes.dropFirst())
        let whole = outcome(of: [rest], first)
        require(outcome(of: rest.map { [$0] }, first) == whole, "pieces make no difference")
        let middle = rest.count / 2
        let halves = [Array(rest[..<middle]), Array(rest[middle...])]
        require(outcome(of: halves, first) == whole, "pieces make no difference")
        for (index, event) in whole.events.enumerated() {
            switch event {
            case .message(let message):
                require(message.count <= limits.messageSize, "a message is bounded")
            case .close, .failure:
                require(index == whole.events.count - 1, "nothing follows the end")
            case .ping, .pong: break
            }
        }
        checkHandshakes(rest)
        checkMessage(rest, first)
    }

    private static func compression(_ selector: UInt8) -> DeflateAgreement? {
        guard selector & 2 != 0 else { return nil }
        let direction = DeflateDirection(
            windowBits: 8 + Int(selector >> 3 & 7),
            allowsContextTakeover: selector & 4 != 0
        )
        return DeflateAgreement(client: direction, server: direction)
    }

    private static func outcome(of pieces: [[UInt8]], _ selector: UInt8) -> Outcome {
        var machine = WebSocketMachine(
            role: selector & 1 == 0 ? .server : client,
            compression: compression(selector),
            limits: limits
        )
        var outcome = Outcome()
        for piece in pieces {
            machine.receive(piece.span)
            while let event = machine.nextEvent() { outcome.events.append(event) }
            outcome.output += machine.takeOutput()
        }
        return outcome
    }

    private static func checkMessage(_ bytes: [UInt8], _ selector: UInt8) {
        var sender = WebSocketMachine(role: client, compression: compression(selector))
        let messages = [WebSocketMessage.binary(bytes), .binary(bytes)]
        for message in messages {
            let isSent: Void? = parsed { () throws(WebSocketError) in try sender.send(message) }
            require(isSent != nil, "a message can be sent")
        }
        let frames = sender.takeOutput()
        let events = outcome(of: [frames], selector & ~1).events
        require(events == messages.map { .message($0) }, "a message arrives as it was sent")
    }

    private static func checkHandshakes(_ bytes: [UInt8]) {
        let nonce = [UInt8](repeating: 1, count: 16)
        let answer = parsed { () throws(WebSocketError) in
            var handshake = try ClientHandshake(host: "a", target: "/", nonce: nonce)
            return try handshake.receive(bytes.span)
        }
        if let agreement = answer ?? nil {
            require(agreement.head.line.contains("101"), "only status 101 accepts")
        }
        let request = parsed { () throws(WebSocketError) in
            var handshake = ServerHandshake()
            return try handshake.receive(bytes.span)?.head
        }
        guard let head = request ?? nil else { return }
        if case .accept(let answer, _, _) = ServerHandshake().answer(to: head) {
            let again = parsed { () throws(WebSocketError) in
                try HTTPHead(reading: answer.bytes[...])
            }
            require(again == answer, "an answer is read as it was written")
        }
    }

    static func seeds() throws -> [[UInt8]] {
        var seeds: [[UInt8]] = []
        for selector: UInt8 in [0, 2, 0x3A, 0x3E] {
            var machine = WebSocketMachine(role: client, compression: compression(selector))
            try machine.send(.text("a text, a text"))
            try machine.ping([1, 2])
            try machine.send(.binary([UInt8](repeating: 7, count: 300)))
            machine.close(WebSocketClose(code: .normalClosure, reason: "end"))
            seeds.append([selector] + machine.takeOutput())
        }
        let handshake = try ClientHandshake(
            host: "a",
            target: "/",
            nonce: [UInt8](repeating: 1, count: 16)
        )
        seeds.append([0] + handshake.request)
        var server = ServerHandshake()
        if let head = try server.receive(handshake.request.span)?.head,
            case .accept(let answer, _, _) = ServerHandshake().answer(to: head)
        {
            seeds.append([1] + answer.bytes)
        }
        return seeds
    }

    static var words: [[UInt8]] {
        utf8(
            "permessage-deflate",
            "server_no_context_takeover",
            "client_max_window_bits=",
            "Sec-WebSocket-Extensions: ",
            "Sec-WebSocket-Accept: ",
            "\r\n\r\n"
        ) + [[0x81, 0x80], [0xC1, 0xFE], [0x00, 0x80], [0x88, 0x82], [0x00, 0x00, 0xFF, 0xFF]]
    }
}
