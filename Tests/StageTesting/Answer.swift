/// The response of a ``TestServer`` to one request; well-formed by default.
///
/// ```swift
/// server.answer("/pack", with: .content(bytes).cut(after: 1000), .content(bytes))
/// ```
package struct Answer: Sendable {
    /// The status; `nil` for 200, or for 206, 304 or 416 as the request demands.
    package var status: Int?
    /// Further header fields, which replace fields of the same name that the server adds.
    package var fields: [String: String] = [:]
    /// The names, in lower case, of header fields that the server omits.
    package var omittedFields: Set<String> = []
    /// The content.
    package var content: [UInt8]
    /// The entity tag with its quotation marks; `nil` for none.
    package var entityTag: String?
    /// Responds to a request for a range with that range; otherwise with the whole content.
    package var honoursRange = true
    /// Responds with the whole content if `If-Range` names another version; otherwise with the range.
    package var honoursIfRange = true
    /// The number of bytes by which a range begins before the requested one; negative for after it.
    package var rangeShift = 0
    /// Sends the body in chunks, without a length.
    package var isChunked = false
    /// The number of body bytes after which the server closes the connection; `nil` for none.
    package var cutAfter: Int?
    /// The number of body bytes after which the server stalls; `nil` for none.
    package var stallAfter: Int?
    /// The number of body bytes after which the server waits for the gate; `nil` for none.
    package var hold: (count: Int, gate: Gate)?
    /// The bytes per second; `nil` for no limit.
    package var rate: Int?
    /// Sends a body that never ends.
    package var isEndless = false
    /// Closes the connection without a response.
    package var isDropped = false
    /// Closes the connection after the response.
    package var closes = false
    /// The number of bytes of the request's body after which the server closes the connection without a response.
    package var dropsBodyAfter: Int?
    /// Responds before the request's body was read, and then closes the connection.
    package var comesEarly = false
    /// Sends `100 Continue` if the request expects it.
    package var continues = true
    /// The version in the status line.
    package var version = "HTTP/1.1"
    /// The bytes that the server sends without end instead of a response.
    package var flood: Flood?
    /// Writes the response; the other properties are then ignored.
    package var script: (@Sendable (Wire) -> Void)?
    /// The gate that must be open before the server responds; `nil` for none.
    package var gate: Gate?
    /// Blocks until the server may respond.
    package var prepare: (@Sendable () -> Void)?

    /// Creates a response with content.
    package init(content: [UInt8]) { self.content = content }

    /// Returns a well-formed response with content: ranges, `If-Range` and `If-None-Match` with a strong
    /// entity tag that is computed from the content.
    package static func content(_ content: [UInt8]) -> Answer {
        var answer = Answer(content: content)
        var hasher = Hasher()
        unsafe content.withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
        let hash = UInt(bitPattern: hasher.finalize())
        answer.entityTag = "\"\(String(hash, radix: 36))-\(content.count)\""
        return answer
    }

    /// Returns a response with a status and no content.
    package static func status(_ status: Int) -> Answer {
        var answer = Answer(content: [])
        answer.status = status
        return answer
    }

    /// Returns a redirect to `location`.
    package static func redirect(to location: String, status: Int = 302) -> Answer {
        Self.status(status).field("Location", location)
    }

    /// The login page of a captive portal.
    package static var portal: Answer {
        var answer = Answer(content: Array("<html><body>Please log in</body></html>".utf8))
        answer.status = 200
        return answer.field("Content-Type", "text/html; charset=utf-8")
    }

    /// A connection that is closed without a response.
    package static var dropped: Answer {
        var answer = Answer(content: [])
        answer.isDropped = true
        return answer
    }
}

extension Answer {
    /// Returns a copy that `change` has modified.
    package func with(_ change: (inout Answer) -> Void) -> Answer {
        var answer = self
        change(&answer)
        return answer
    }

    /// Returns a copy with a further header field.
    package func field(_ name: String, _ value: String) -> Answer {
        with { $0.fields[name] = value }
    }

    /// Returns a copy that omits a header field of the server.
    package func omitting(_ name: String) -> Answer {
        with { $0.omittedFields.insert(name.lowercased()) }
    }

    /// Returns a copy with another entity tag; `nil` for none.
    package func tagged(_ entityTag: String?) -> Answer { with { $0.entityTag = entityTag } }

    /// Returns a copy whose connection is closed after `count` bytes of the body.
    package func cut(after count: Int) -> Answer { with { $0.cutAfter = count } }

    /// Returns a copy that stalls after `count` bytes of the body.
    package func stalled(after count: Int) -> Answer { with { $0.stallAfter = count } }

    /// Returns a copy that sends `count` bytes of the body, and the others when `gate` is open.
    package func held(after count: Int = 0, until gate: Gate) -> Answer {
        with { $0.hold = (count, gate) }
    }

    /// Returns a copy that sends `rate` bytes per second.
    package func slowed(to rate: Int) -> Answer { with { $0.rate = rate } }

    /// Returns a copy that is sent in chunks, without a length.
    package func chunked() -> Answer { with { $0.isChunked = true } }

    /// Returns a copy that ignores requested ranges.
    package func ignoringRanges() -> Answer { with { $0.honoursRange = false } }

    /// Returns a copy that sends requested ranges even if `If-Range` names another version.
    package func ignoringIfRange() -> Answer { with { $0.honoursIfRange = false } }

    /// Returns a copy of which nothing is sent until `gate` is open.
    package func waiting(for gate: Gate) -> Answer { with { $0.gate = gate } }

    /// Returns a copy of which nothing is sent until `body` returns.
    package func waiting(for body: @escaping @Sendable () -> Void) -> Answer {
        with { $0.prepare = body }
    }
}

extension Answer {
    /// Bytes that a server sends without end.
    package enum Flood: CaseIterable, Sendable {
        /// Header fields.
        case fields
        /// One header field.
        case field
        /// Interim responses.
        case interim
        /// Lines that continue a header field.
        case continuations
        /// Empty lines after an interim response.
        case emptyLines
        /// Fields after the last chunk.
        case trailers
        /// One field after the last chunk.
        case trailer
        /// One extension of a chunk.
        case chunkExtension

        /// The number of bytes after which the server stops sending.
        static let most = 64 << 20

        /// The first bytes, and those that are then repeated.
        var bytes: (first: String, repeated: String) {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
            let chunks = "\(head)Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
            let field = "X-Flood: \(String(repeating: "f", count: 1000))\r\n"
            let text = String(repeating: "f", count: 1000)
            return switch self {
            case .fields: (head, field)
            case .field: ("\(head)X-Flood: ", text)
            case .interim: ("", "HTTP/1.1 103 Early Hints\r\n\(field)\r\n")
            case .continuations: ("\(head)X-Flood: a\r\n", " \(text)\r\n")
            case .emptyLines: ("HTTP/1.1 103 Early Hints\r\n\r\n", "\r\n")
            case .trailers: ("\(chunks)0\r\n", field)
            case .trailer: ("\(chunks)0\r\nX-Flood: ", text)
            case .chunkExtension: ("\(chunks)1;x=", text)
            }
        }
    }

    /// Returns a flood of bytes instead of a response.
    package static func flood(_ flood: Flood) -> Answer {
        Answer(content: []).with { $0.flood = flood }
    }
}
