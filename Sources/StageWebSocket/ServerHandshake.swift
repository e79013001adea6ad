/// Opening handshake of a server without I/O (RFC 6455, section 4.2): parses a request and creates the response.
package struct ServerHandshake: Sendable {
    /// Response to a request.
    package enum Answer: Equatable, Sendable {
        /// Accept the request, with a head of status 101.
        case accept(head: HTTPHead, subprotocol: String?, compression: DeflateAgreement?)
        /// Refuse the request with a complete response without a body, then close the connection.
        case refuse(head: HTTPHead)
    }

    /// Subprotocols that the server supports.
    package var subprotocols: [String]
    /// Maximum use of permessage-deflate; `nil` for none.
    package var compression: DeflateAgreement?

    private var input: [UInt8] = []

    /// Creates a handshake.
    package init(
        subprotocols: [String] = [],
        compression: DeflateAgreement? = DeflateAgreement()
    ) {
        self.subprotocols = subprotocols
        self.compression = compression
    }

    /// Processes bytes of a request, and returns its head and the bytes after it once the head is complete.
    ///
    /// - Throws: ``WebSocketError/handshake(_:)`` if it is too large or not a head.
    package mutating func receive(
        _ bytes: Span<UInt8>
    ) throws(WebSocketError) -> (head: HTTPHead, rest: [UInt8])? {
        let start = input.count
        unsafe bytes.withUnsafeBufferPointer { unsafe input.append(contentsOf: $0) }
        guard let count = try HTTPHead.length(in: input, from: start) else { return nil }
        return (try HTTPHead(reading: input[..<count]), Array(input[count...]))
    }

    /// Returns the response to a request.
    ///
    /// The client's order of subprotocols takes precedence. A request that offers none of ``subprotocols`` is
    /// accepted without one.
    package func answer(to request: HTTPHead) -> Answer {
        let words = request.line.split(separator: " ", omittingEmptySubsequences: false)
        guard words.count == 3, words[0] == "GET", words[2] == "HTTP/1.1",
            request.values(of: "Host").count == 1,
            request.values(of: "Content-Length").allSatisfy({ $0 == "0" }),
            request.values(of: "Transfer-Encoding").isEmpty
        else { return Self.refusal(400, reason: "Bad Request") }
        guard request.list("Upgrade").contains(where: { $0.lowercased() == "websocket" }),
            request.list("Connection").contains(where: { $0.lowercased() == "upgrade" })
        else {
            let upgrade = WebSocketField(name: "Upgrade", value: "websocket")
            return Self.refusal(426, reason: "Upgrade Required", fields: [upgrade])
        }
        guard request.values(of: "Sec-WebSocket-Version") == ["13"] else {
            let version = WebSocketField(name: "Sec-WebSocket-Version", value: "13")
            return Self.refusal(426, reason: "Upgrade Required", fields: [version])
        }
        let keys = request.values(of: "Sec-WebSocket-Key")
        let offered = request.list("Sec-WebSocket-Protocol")
        guard keys.count == 1, Base64.isEncoding(keys[0], of: 16), offered.allSatisfy(\.isToken)
        else { return Self.refusal(400, reason: "Bad Request") }
        var fields = [
            WebSocketField(name: "Upgrade", value: "websocket"),
            WebSocketField(name: "Connection", value: "Upgrade"),
            WebSocketField(name: "Sec-WebSocket-Accept", value: Self.accept(for: keys[0])),
        ]
        let subprotocol = offered.first(where: subprotocols.contains)
        if let subprotocol {
            fields.append(WebSocketField(name: "Sec-WebSocket-Protocol", value: subprotocol))
        }
        var agreement: DeflateAgreement?
        do throws(WebSocketError) {
            let offers = request.values(of: "Sec-WebSocket-Extensions")
            if let compression,
                let (agreed, answer) = try DeflateAgreement.accept(
                    offers: offers,
                    preference: compression
                )
            {
                agreement = agreed
                fields.append(WebSocketField(name: "Sec-WebSocket-Extensions", value: answer))
            }
        } catch {
            return Self.refusal(400, reason: "Bad Request")
        }
        let head = HTTPHead(line: "HTTP/1.1 101 Switching Protocols", fields: fields)
        return .accept(head: head, subprotocol: subprotocol, compression: agreement)
    }

    /// Returns the response that refuses a request with a status and further fields.
    package static func refusal(
        _ status: Int,
        reason: String,
        fields: [WebSocketField] = []
    ) -> Answer {
        let end = [
            WebSocketField(name: "Content-Length", value: "0"),
            WebSocketField(name: "Connection", value: status == 426 ? "close, Upgrade" : "close"),
        ]
        return .refuse(head: HTTPHead(line: "HTTP/1.1 \(status) \(reason)", fields: fields + end))
    }

    /// Returns the value of `Sec-WebSocket-Accept` for a key (RFC 6455, section 4.2.2).
    static func accept(for key: String) -> String {
        let id = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        return Base64.encode(SHA1.digest(of: Array("\(key)\(id)".utf8)))
    }
}
