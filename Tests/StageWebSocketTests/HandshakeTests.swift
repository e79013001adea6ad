import StageWebSocket
import Testing

@Suite struct HandshakeTests {
    /// The nonce of the example of RFC 6455, section 1.3.
    static let nonce = Array("the sample nonce".utf8)
    static let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

    /// Returns a request with the fields of a handshake, some replaced; `nil` removes one.
    private static func request(
        line: String = "GET /chat HTTP/1.1",
        _ changes: [String: String?] = [:]
    ) -> HTTPHead {
        var fields: [String: String?] = [
            "Host": "a", "Upgrade": "websocket", "Connection": "keep-alive, Upgrade",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13",
        ]
        fields.merge(changes) { $1 }
        return HTTPHead(
            line: line,
            fields: fields.compactMap { name, value in
                value.map { WebSocketField(name: name, value: $0) }
            }
        )
    }

    /// Returns the head of a server's response.
    private static func answer(
        _ request: HTTPHead,
        subprotocols: [String] = []
    ) -> HTTPHead {
        switch ServerHandshake(subprotocols: subprotocols).answer(to: request) {
        case .accept(let head, _, _), .refuse(let head): head
        }
    }

    @Test func theKeyOfTheExampleOfTheStandardIsAccepted() throws {
        let head = Self.answer(Self.request())
        #expect(head.line == "HTTP/1.1 101 Switching Protocols")
        #expect(head.values(of: "sec-websocket-accept") == [Self.accept])
        let handshake = try ClientHandshake(host: "a", target: "/chat", nonce: Self.nonce)
        let text = String(decoding: handshake.request, as: UTF8.self)
        #expect(text.hasPrefix("GET /chat HTTP/1.1\r\nHost: a\r\n"))
        #expect(text.contains("\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"))
    }

    static let refusals: [(String, [String: String?], Int)] = [
        ("POST /chat HTTP/1.1", [:], 400),
        ("GET /chat HTTP/1.0", [:], 400),
        ("GET /chat HTTP/1.1", ["Host": nil], 400),
        ("GET /chat HTTP/1.1", ["Upgrade": nil], 426),
        ("GET /chat HTTP/1.1", ["Upgrade": "h2c"], 426),
        ("GET /chat HTTP/1.1", ["Connection": "keep-alive"], 426),
        ("GET /chat HTTP/1.1", ["Sec-WebSocket-Version": "8"], 426),
        ("GET /chat HTTP/1.1", ["Sec-WebSocket-Key": nil], 400),
        ("GET /chat HTTP/1.1", ["Sec-WebSocket-Key": "dGhlIHNhbXBsZQ=="], 400),
        ("GET /chat HTTP/1.1", ["Content-Length": "4"], 400),
        ("GET /chat HTTP/1.1", ["Transfer-Encoding": "chunked"], 400),
        ("GET /chat HTTP/1.1", ["Sec-WebSocket-Extensions": "permessage-deflate; ="], 400),
    ]

    @Test(arguments: refusals)
    func aRequestThatIsNoHandshakeIsRefused(line: String, changes: [String: String?], status: Int) {
        let head = Self.answer(Self.request(line: line, changes))
        #expect(head.line.hasPrefix("HTTP/1.1 \(status) "))
        #expect(head.values(of: "Content-Length") == ["0"])
    }

    static let offers: [(String, String?)] = [
        ("permessage-deflate", "permessage-deflate"),
        ("x-webkit-deflate-frame", nil),
        ("permessage-deflate; unknown", nil),
        ("permessage-deflate; server_max_window_bits=16", nil),
        ("permessage-deflate; server_max_window_bits=08", nil),
        ("permessage-deflate; server_max_window_bits", nil),
        ("permessage-deflate; server_no_context_takeover=1", nil),
        ("permessage-deflate; client_max_window_bits; client_max_window_bits", nil),
        ("permessage-deflate; client_max_window_bits", "permessage-deflate"),
        (
            "permessage-deflate; client_max_window_bits=\"9\"",
            "permessage-deflate; client_max_window_bits=9"
        ),
        (
            "permessage-deflate; server_max_window_bits=8; server_no_context_takeover",
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=8"
        ),
        (
            "permessage-deflate; unknown, permessage-deflate; client_no_context_takeover",
            "permessage-deflate; client_no_context_takeover"
        ),
    ]

    @Test(arguments: offers)
    func theFirstOfferThatCanBeMetIsAccepted(offer: String, expected: String?) {
        let head = Self.answer(Self.request(["Sec-WebSocket-Extensions": offer]))
        #expect(head.line == "HTTP/1.1 101 Switching Protocols")
        #expect(head.values(of: "Sec-WebSocket-Extensions") == (expected.map { [$0] } ?? []))
    }

    @Test func theClientsOrderOfSubprotocolsCounts() {
        let request = Self.request(["Sec-WebSocket-Protocol": "c, b, a"])
        let head = Self.answer(request, subprotocols: ["a", "b"])
        #expect(head.values(of: "Sec-WebSocket-Protocol") == ["b"])
        let none = Self.answer(request, subprotocols: ["d"])
        #expect(none.values(of: "Sec-WebSocket-Protocol") == [])
    }

    static let answers: [(String, WebSocketError?)] = [
        ("", nil),
        ("Sec-WebSocket-Protocol: b\r\n", nil),
        ("Sec-WebSocket-Protocol: d\r\n", .handshake(.subprotocol)),
        (
            "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b\r\n",
            .handshake(.subprotocol)
        ),
        ("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", .handshake(.accept)),
        ("Upgrade: h2c\r\n", .handshake(.upgrade)),
        ("Sec-WebSocket-Extensions: permessage-deflate\r\n", nil),
        ("Sec-WebSocket-Extensions: x-other\r\n", .handshake(.extensions)),
        (
            "Sec-WebSocket-Extensions: permessage-deflate, permessage-deflate\r\n",
            .handshake(.extensions)
        ),
        (
            "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n",
            .handshake(.extensions)
        ),
        ("Folded: a\r\n b\r\n", .handshake(.head)),
        ("No field\r\n", .handshake(.head)),
        ("Control: a\u{1}\r\n", .handshake(.head)),
    ]

    @Test(arguments: answers)
    func theAnswerIsVerified(fields: String, error: WebSocketError?) throws {
        var handshake = try ClientHandshake(
            host: "a",
            target: "/chat",
            nonce: Self.nonce,
            subprotocols: ["a", "b"]
        )
        let text =
            "HTTP/1.1 101 OK\r\nupgrade: WebSocket\r\nConnection: upgrade\r\n"
            + "Sec-WebSocket-Accept: \(Self.accept)\r\n\(fields)\r\n"
        let bytes = Array(text.utf8)
        if let error {
            #expect(throws: error) { try handshake.receive(bytes.span) }
        } else {
            #expect(try handshake.receive(bytes.span) != nil)
        }
    }

    @Test(arguments: [
        ("HTTP/1.1 404 Not Found\r\n\r\n", WebSocketError.refused(status: 404)),
        ("HTTP/1.0 101 OK\r\n\r\n", .handshake(.head)),
        ("HTTP/1.1 101 OK\r\n\r\n", .handshake(.upgrade)),
        ("HTTP/1.1 101 OK\r\nUpgrade: websocket\r\n\r\n", .handshake(.connection)),
        (
            "HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                + "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
            .handshake(.accept)
        ),
    ])
    func anotherAnswerIsRefused(text: String, error: WebSocketError) throws {
        var handshake = try ClientHandshake(host: "a", target: "/", nonce: Self.nonce)
        #expect(throws: error) { try handshake.receive(Array(text.utf8).span) }
    }

    @Test func aHeadWithoutEndIsRefused() throws {
        var handshake = try ClientHandshake(host: "a", target: "/", nonce: Self.nonce)
        let piece = [UInt8](repeating: 0x61, count: 1 << 15)
        _ = try handshake.receive(piece.span)
        _ = try handshake.receive(piece.span)
        let error = WebSocketError.handshake(.headTooLarge(limit: 1 << 16))
        #expect(throws: error) { try handshake.receive(piece.span) }
    }

    @Test(arguments: [
        ("a\r\nX: y", "/", []), ("a", "/ x", []), ("a", "x", []), ("a", "/", ["a b"]),
        ("a", "/", ["a", "a"]),
    ])
    func anArgumentThatNoHeadCanCarryIsRefused(host: String, target: String, names: [String]) {
        #expect(throws: WebSocketError.handshake(.argument)) {
            try ClientHandshake(
                host: host,
                target: target,
                nonce: Self.nonce,
                subprotocols: names
            )
        }
    }

    @Test func anOfferWithoutContextTakeoverHasToBeConfirmed() throws {
        let offer = DeflateAgreement(
            server: DeflateDirection(windowBits: 10, allowsContextTakeover: false)
        )
        func agreement(_ parameters: String) throws -> DeflateAgreement? {
            var handshake = try ClientHandshake(
                host: "a",
                target: "/",
                nonce: Self.nonce,
                compression: offer
            )
            let text =
                "HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
                + "Sec-WebSocket-Accept: \(Self.accept)\r\n"
                + "Sec-WebSocket-Extensions: permessage-deflate\(parameters)\r\n\r\n"
            return try handshake.receive(Array(text.utf8).span)?.compression
        }
        let error = WebSocketError.handshake(.extensions)
        #expect(throws: error) { try agreement("; server_max_window_bits=10") }
        #expect(throws: error) { try agreement("; server_no_context_takeover") }
        #expect(throws: error) {
            try agreement("; server_no_context_takeover; server_max_window_bits=11")
        }
        let smaller = try agreement("; server_no_context_takeover; server_max_window_bits=9")
        #expect(smaller?.server == DeflateDirection(windowBits: 9, allowsContextTakeover: false))
    }
}
