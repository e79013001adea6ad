import Glibc

/// The head and the body of an ``Answer`` to one request.
struct Reply {
    private let answer: Answer
    private let body: ArraySlice<UInt8>
    private let isBodyless: Bool
    /// The status line and the header fields.
    let head: String

    init(_ answer: Answer, to request: RequestHead) {
        self.answer = answer
        isBodyless = request.method == "HEAD"
        var fields = ["Date": Self.date, "Content-Type": "application/octet-stream"]
        if let tag = answer.entityTag { fields["ETag"] = tag }
        let (status, body, range) = Self.select(answer, request)
        self.body = body
        if let range { fields["Content-Range"] = range }
        if answer.isChunked {
            fields["Transfer-Encoding"] = "chunked"
        } else if !answer.isEndless {
            fields["Content-Length"] = "\(body.count)"
        }
        for (name, value) in answer.fields {
            fields = fields.filter { $0.key.lowercased() != name.lowercased() }
            fields[name] = value
        }
        fields = fields.filter { !answer.omittedFields.contains($0.key.lowercased()) }
        let lines = fields.map { "\($0.key): \($0.value)\r\n" }.sorted()
        head = "\(answer.version) \(status) Test\r\n\(lines.joined())\r\n"
    }

    private static func select(
        _ answer: Answer,
        _ request: RequestHead
    ) -> (Int, ArraySlice<UInt8>, String?) {
        let content = answer.content[...]
        if let status = answer.status { return (status, content, nil) }
        if let tag = answer.entityTag, request["if-none-match"] == tag { return (304, [], nil) }
        let isSame = request["if-range"].map { $0 == answer.entityTag } ?? true
        guard answer.honoursRange, let start = request.rangeStart,
            isSame || !answer.honoursIfRange
        else { return (200, content, nil) }
        guard start < content.count else { return (416, [], "bytes */\(content.count)") }
        let first = min(max(start - answer.rangeShift, 0), content.count - 1)
        let last = min(request.rangeEnd ?? content.count - 1, content.count - 1)
        return (206, content[first...last], "bytes \(first)-\(last)/\(content.count)")
    }

    /// Sends the body.
    ///
    /// - Parameters:
    ///   - socket: The connection.
    ///   - count: Adds to the number of sent bytes. It is called before the last bytes are sent, because their receiver may end before
    ///     this thread runs again, and with a correction if they cannot be sent. Bytes of a body that stalls, or whose receiver
    ///     disconnects, are counted at the end of the connection.
    /// - Returns: `true` if the connection stays open.
    func sendBody(to socket: Socket, counting count: (Int) -> Void) -> Bool {
        if isBodyless { return true }
        var (sent, counted) = (0, 0)
        defer { count(sent - counted) }
        let end = min(body.count, answer.cutAfter ?? .max, answer.stallAfter ?? .max)
        let hasEnd = !answer.isEndless && (answer.stallAfter == nil || end == body.count)
        var hold = answer.hold
        while sent < end || answer.isEndless {
            if let (count, gate) = hold, sent >= min(count, body.count) {
                guard socket.wait(for: gate) else { return false }
                hold = nil
            }
            let size = min(
                answer.rate.map { max($0 / 50, 1) } ?? 1 << 16,
                hold.map { $0.count - sent } ?? .max
            )
            let rest = answer.isEndless ? body : body.dropFirst(sent).prefix(end - sent)
            let piece = rest.prefix(size)
            if hasEnd, sent + piece.count == end {
                counted = end
                count(counted)
            }
            guard socket.send(answer.isChunked ? Self.chunk(piece) : Array(piece)) else {
                return false
            }
            sent += piece.count
            if answer.rate != nil { usleep(20_000) }
        }
        if answer.stallAfter != nil {
            socket.waitForEnd()
            return false
        }
        if let cut = answer.cutAfter, cut <= body.count { return false }
        if answer.isChunked, !socket.send(Array("0\r\n\r\n".utf8)) { return false }
        let hasLength = !answer.omittedFields.contains("content-length") || answer.isChunked
        return hasLength
    }

    private static func chunk(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        Array("\(String(bytes.count, radix: 16))\r\n".utf8) + bytes + Array("\r\n".utf8)
    }

    /// The current date, in the format of HTTP.
    private static var date: String {
        var now = time(nil)
        var parts = unsafe tm()
        unsafe gmtime_r(&now, &parts)
        var text = [CChar](repeating: 0, count: 64)
        let format = "%a, %d %b %Y %H:%M:%S GMT"
        let count = unsafe strftime(&text, text.count, format, &parts)
        return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
