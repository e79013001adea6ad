/// Opening handshake of a client without I/O (RFC 6455, section 4.1): creates the request and parses the response.
package struct ClientHandshake: Sendable {
    /// Result of an accepted handshake.
    package struct Agreement: Equatable, Sendable {
        /// Subprotocol that the server selected.
        package var subprotocol: String?
        /// Compression, if the server accepted it.
        package var compression: DeflateAgreement?
        /// Head of the response.
        package var head: HTTPHead
        /// Bytes after the head, which begin the first frames.
        package var rest: [UInt8]
    }

    /// Bytes of the request.
    package let request: [UInt8]
    private let key: String
    private let subprotocols: [String]
    private let compression: DeflateAgreement?
    private var input: [UInt8] = []

    /// Head of the response once it is complete, whether it accepts the handshake or not.
    package private(set) var head: HTTPHead?

    /// Creates a handshake.
    ///
    /// - Parameters:
    ///   - host: Value of the `Host` field.
    ///   - target: Path and query of the URL.
    ///   - nonce: 16 random bytes, new for each connection.
    ///   - subprotocols: Subprotocols to offer, the preferred one first.
    ///   - compression: Maximum offer of permessage-deflate; `nil` for none.
    ///   - fields: Further fields.
    /// - Throws: ``HandshakeFault/argument`` if one of them cannot be part of a head.
    package init(
        host: String,
        target: String,
        nonce: [UInt8],
        subprotocols: [String] = [],
        compression: DeflateAgreement? = DeflateAgreement(),
        fields: [WebSocketField] = []
    ) throws(WebSocketError) {
        precondition(nonce.count == 16, "expected a nonce of 16 bytes")
        key = Base64.encode(nonce)
        self.subprotocols = subprotocols
        self.compression = compression
        let isPath = target.hasPrefix("/") && target.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F }
        let isHost = !host.isEmpty && host.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F }
        guard isPath, isHost, subprotocols.allSatisfy(\.isToken),
            Set(subprotocols).count == subprotocols.count,
            fields.allSatisfy({ $0.name.isToken && $0.value.isFieldValue && !Self.isOwn($0.name) })
        else { throw .handshake(.argument) }
        var all = [
            WebSocketField(name: "Host", value: host),
            WebSocketField(name: "Upgrade", value: "websocket"),
            WebSocketField(name: "Connection", value: "Upgrade"),
            WebSocketField(name: "Sec-WebSocket-Key", value: key),
            WebSocketField(name: "Sec-WebSocket-Version", value: "13"),
        ]
        if !subprotocols.isEmpty {
            let list = subprotocols.joined(separator: ", ")
            all.append(WebSocketField(name: "Sec-WebSocket-Protocol", value: list))
        }
        if let compression {
            all.append(WebSocketField(name: "Sec-WebSocket-Extensions", value: compression.offer))
        }
        request = HTTPHead(line: "GET \(target) HTTP/1.1", fields: all + fields).bytes
    }

    /// Returns whether the handshake itself sends a field, so that a caller must not.
    package static func isOwn(_ name: String) -> Bool {
        let name = name.lowercased()
        let framing = ["host", "upgrade", "connection", "content-length", "transfer-encoding"]
        return framing.contains(name) || name.hasPrefix("sec-websocket-")
    }

    /// Processes bytes of the response, and returns the agreement once the head is complete.
    ///
    /// - Throws: ``WebSocketError/refused(status:)`` for another status than 101, ``WebSocketError/handshake(_:)``
    ///   for a response that violates the protocol. The caller may follow redirects and answer challenges, from
    ///   ``head``.
    package mutating func receive(
        _ bytes: Span<UInt8>
    ) throws(WebSocketError) -> Agreement? {
        let start = input.count
        unsafe bytes.withUnsafeBufferPointer { unsafe input.append(contentsOf: $0) }
        guard let count = try HTTPHead.length(in: input, from: start) else { return nil }
        let head = try HTTPHead(reading: input[..<count])
        self.head = head
        let words = head.line.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false)
        guard words.count >= 2, words[0] == "HTTP/1.1", words[1].utf8.count == 3,
            let status = Int(words[1])
        else { throw .handshake(.head) }
        guard status == 101 else { throw .refused(status: status) }
        guard head.list("Upgrade").map({ $0.lowercased() }) == ["websocket"] else {
            throw .handshake(.upgrade)
        }
        guard head.list("Connection").contains(where: { $0.lowercased() == "upgrade" }) else {
            throw .handshake(.connection)
        }
        guard head.values(of: "Sec-WebSocket-Accept") == [ServerHandshake.accept(for: key)] else {
            throw .handshake(.accept)
        }
        let selected = head.values(of: "Sec-WebSocket-Protocol")
        guard selected.count <= 1, selected.allSatisfy(subprotocols.contains) else {
            throw .handshake(.subprotocol)
        }
        return Agreement(
            subprotocol: selected.first,
            compression: try DeflateAgreement.read(answer: head, to: compression),
            head: head,
            rest: Array(input[count...])
        )
    }
}
