/// What a ``TestServer`` answers to one request, well-behaved unless told otherwise.
///
/// ```swift
/// server.answer("/pack", with: .content(bytes).cut(after: 1000), .content(bytes))
/// ```
package struct Answer: Sendable {
    /// The status; `nil` stands for 200, or 206 and 416 as the request asks for a range.
    package var status: Int?
    /// The reason and further header fields, which replace those of the same name made by the server.
    package var fields: [String: String] = [:]
    /// The names, in lower case, of fields that are left out.
    package var omittedFields: Set<String> = []
    /// The content.
    package var content: [UInt8]
    /// The entity tag, quotation marks and all; `nil` for none.
    package var entityTag: String?
    /// Whether a request for a range gets one.
    package var honoursRange = true
    /// Whether a request for a range of another version gets the whole.
    package var honoursIfRange = true
    /// How many bytes before the one asked for a range begins; negative for after.
    package var rangeShift = 0
    /// Whether the body comes in chunks, without a length.
    package var isChunked = false
    /// After how many bytes of the body the connection is closed.
    package var cutAfter: Int?
    /// After how many bytes of the body nothing more comes.
    package var stallAfter: Int?
    /// How many bytes come in a second; `nil` for as fast as can be.
    package var rate: Int?
    /// Whether the body never ends.
    package var isEndless = false
    /// Whether the connection is closed in the middle of nothing instead of an answer.
    package var isDropped = false
    /// Whether the connection is closed after the answer.
    package var closes = false
    /// After how many bytes of the request's body the connection is closed, without an answer.
    package var dropsBodyAfter: Int?
    /// Whether the answer comes before the request's body was read, which then ends the connection.
    package var comesEarly = false
    /// Whether a request that asks for leave to send its body gets it.
    package var continues = true
    /// The status line's version.
    package var version = "HTTP/1.1"
    /// What the server sends without end instead of the answer.
    package var flood: Flood?
    /// What writes the answer; the rest of it then does not count.
    package var script: (@Sendable (Wire) -> Void)?
    /// What the server waits for before it answers.
    package var gate: (@Sendable () -> Void)?

    /// Creates an answer with content.
    package init(content: [UInt8]) { self.content = content }

    /// Sends content as a good server does: ranges, `If-Range` and `If-None-Match` under a strong
    /// entity tag made from the content.
    package static func content(_ content: [UInt8]) -> Answer {
        var answer = Answer(content: content)
        var hasher = Hasher()
        unsafe content.withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
        let hash = UInt(bitPattern: hasher.finalize())
        answer.entityTag = "\"\(String(hash, radix: 36))-\(content.count)\""
        return answer
    }

    /// Sends a status with no content.
    package static func status(_ status: Int) -> Answer {
        var answer = Answer(content: [])
        answer.status = status
        return answer
    }

    /// Sends the client elsewhere.
    package static func redirect(to location: String, status: Int = 302) -> Answer {
        Self.status(status).field("Location", location)
    }

    /// Sends a page for a person, as a captive portal does.
    package static var portal: Answer {
        var answer = Answer(content: Array("<html><body>Please log in</body></html>".utf8))
        answer.status = 200
        return answer.field("Content-Type", "text/html; charset=utf-8")
    }

    /// Closes the connection without a word.
    package static var dropped: Answer {
        var answer = Answer(content: [])
        answer.isDropped = true
        return answer
    }
}

extension Answer {
    /// The answer with something about it changed.
    package func with(_ change: (inout Answer) -> Void) -> Answer {
        var answer = self
        change(&answer)
        return answer
    }

    /// The answer with a header field of its own.
    package func field(_ name: String, _ value: String) -> Answer {
        with { $0.fields[name] = value }
    }

    /// The answer without a header field that the server would make.
    package func omitting(_ name: String) -> Answer {
        with { $0.omittedFields.insert(name.lowercased()) }
    }

    /// The answer under another entity tag; `nil` for none.
    package func tagged(_ entityTag: String?) -> Answer { with { $0.entityTag = entityTag } }

    /// The answer whose connection is closed after so many bytes of the body.
    package func cut(after count: Int) -> Answer { with { $0.cutAfter = count } }

    /// The answer of which nothing more comes after so many bytes of the body.
    package func stalled(after count: Int) -> Answer { with { $0.stallAfter = count } }

    /// The answer at so many bytes a second.
    package func slowed(to rate: Int) -> Answer { with { $0.rate = rate } }

    /// The answer in chunks, without a length.
    package func chunked() -> Answer { with { $0.isChunked = true } }

    /// The answer to which ranges mean nothing.
    package func ignoringRanges() -> Answer { with { $0.honoursRange = false } }

    /// The answer that gives ranges of whatever version there is.
    package func ignoringIfRange() -> Answer { with { $0.honoursIfRange = false } }

    /// The answer that comes once `gate` returns.
    package func waiting(for gate: @escaping @Sendable () -> Void) -> Answer {
        with { $0.gate = gate }
    }
}

extension Answer {
    /// Bytes that a server sends without end.
    package enum Flood: CaseIterable, Sendable {
        /// Header fields.
        case fields
        /// One header field.
        case field
        /// Interim answers.
        case interim
        /// Lines that continue a header field.
        case continuations
        /// Empty lines after an interim answer.
        case emptyLines
        /// Fields after the last chunk.
        case trailers
        /// One field after the last chunk.
        case trailer
        /// One extension of a chunk.
        case chunkExtension

        /// The bytes after which a server falls silent.
        static let most = 64 << 20

        /// The bytes that come first, and those that then repeat.
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

    /// Sends bytes without end instead of an answer.
    package static func flood(_ flood: Flood) -> Answer {
        Answer(content: []).with { $0.flood = flood }
    }
}
