import StageModel
import StageSystem

@testable import StageControl
@testable import StageOrigin
@testable import StageTransfer

/// Input from HTTP peers: heads of responses, the daemon's responses, fields of requests.
///
/// - A response of the daemon, and lines of events, do not depend on the pieces in which they arrive.
/// - A length and a range from a head are within the stated bounds; a delay is a day at most; each head is
///   classified.
/// - Formatting a parsed date gives the same text, and libcurl parses it as the same date.
/// - A selected range lies within the content; a served path is encoded as it was decoded, and stays
///   below the directory.
/// - A reference resolves to a URL that can be fetched, and that has no password.
enum HTTPTarget: FuzzTarget {
    static func test(_ bytes: [UInt8]) {
        checkAnswer(bytes)
        checkLines(bytes)
        let text = String(decoding: bytes, as: UTF8.self)
        checkHead(text)
        // Each value is also checked alone, as a server gets it.
        for line in text.split(whereSeparator: \.isNewline).prefix(16) {
            let value = line.split(separator: ":", maxSplits: 1).last.map(String.init) ?? ""
            checkRequest(String(value.trimmingBlanks))
            checkPath(String(line))
            checkURL(String(value.trimmingBlanks))
        }
    }

    // MARK: The daemon's responses

    private struct Parts: Equatable {
        var status: [Int] = []
        var body: [UInt8] = []
        var ends = 0
        var isComplete = false
    }

    private static func answer(_ bytes: [UInt8], inPiecesOf size: Int) -> Parts? {
        var parser = ResponseParser()
        var parts = Parts()
        for start in stride(from: 0, to: bytes.count, by: size) {
            let piece = Array(bytes[start..<min(start + size, bytes.count)])
            let found = parsed { () throws(ControlError) in try parser.read(piece) }
            guard let found else { return nil }
            for part in found {
                switch part {
                case .status(let status): parts.status.append(status)
                case .body(let bytes): parts.body += bytes
                case .end: parts.ends += 1
                }
            }
        }
        parts.isComplete = parser.isComplete
        return parts
    }

    private static func checkAnswer(_ bytes: [UInt8]) {
        let whole = answer(bytes, inPiecesOf: max(bytes.count, 1))
        require(answer(bytes, inPiecesOf: 1) == whole, "an answer is the same byte by byte")
        require(answer(bytes, inPiecesOf: 7) == whole, "an answer is the same in pieces")
        guard let whole else { return }
        require(whole.status.count <= 1 && whole.ends <= 1, "an answer has one status and end")
        require(whole.body.isEmpty || whole.status.count == 1, "a body follows a status")
        require(whole.body.count <= bytes.count, "a body is part of what came")
        require(whole.ends == 0 || whole.isComplete, "an answer that ended is complete")
    }

    private static func lines(_ bytes: [UInt8], inPiecesOf size: Int) -> [[UInt8]]? {
        var splitter = LineSplitter()
        var lines: [[UInt8]] = []
        for start in stride(from: 0, to: bytes.count, by: size) {
            let piece = Array(bytes[start..<min(start + size, bytes.count)])
            let found = parsed { () throws(ControlError) in try splitter.read(piece) }
            guard let found else { return nil }
            lines += found
        }
        return lines + [splitter.remainder]
    }

    private static func checkLines(_ bytes: [UInt8]) {
        let whole = lines(bytes, inPiecesOf: max(bytes.count, 1))
        require(lines(bytes, inPiecesOf: 1) == whole, "lines are the same byte by byte")
        require(lines(bytes, inPiecesOf: 7) == whole, "lines are the same in pieces")
    }

    // MARK: Heads of responses

    private static let rules: [ResponseRules] = {
        var resumed = ResponseRules()
        resumed.offset = 100
        resumed.size = 1000
        resumed.partialTotal = 1000
        var conditional = ResponseRules()
        conditional.isConditional = true
        conditional.hasInsecureHostChange = true
        conditional.expectedKind = .json
        conditional.limit = 1000
        var tolerant = ResponseRules()
        tolerant.acceptsErrorResponses = true
        tolerant.maximumRetryAfter = .seconds(60)
        tolerant.isGet = false
        return [ResponseRules(), resumed, conditional, tolerant]
    }()

    private static func checkHead(_ text: String) {
        let lines = text.utf8.split(separator: 10, omittingEmptySubsequences: false)
            .map { Substring($0) }
        guard let first = lines.first, var head = ResponseHead(statusLine: first) else { return }
        for line in lines.dropFirst() { head.read(line) }
        require(head.fields.count < lines.count, "a field is a line")
        require((head.contentLength ?? 0) >= 0, "a length is one")
        if let pause = head.retryDelay {
            require((.zero ... .seconds(86400)).contains(pause), "a pause is bounded")
        }
        if case .bytes(let range, let total) = head.contentRange {
            require(
                range.lowerBound >= 0 && total.map { range.upperBound < $0 } ?? true,
                "a range is in its total"
            )
            let text =
                "bytes \(range.lowerBound)-\(range.upperBound)/\(total.map(String.init) ?? "*")"
            require(ContentRange(text) == head.contentRange, "a range is written as it was read")
        }
        let validator = Validator(head)
        require(validator?.isConfirmed(by: head) != false, "an answer agrees with itself")
        for rules in rules {
            var rules = rules
            rules.validator = validator
            check(rules.judge(head), of: head, by: rules)
            _ = rules.judgeUpload(head, mayRepeat: true)
        }
    }

    private static func check(
        _ decision: ResponseRules.Decision,
        of head: ResponseHead,
        by rules: ResponseRules
    ) {
        switch decision {
        case .append, .compare:
            guard rules.offset > 0, case .bytes(let range, let total) = head.contentRange else {
                fatalError("content is continued without a range")
            }
            require(
                head.status == 206 && total == rules.size,
                "content continues with a part of it"
            )
            require(range.contains(rules.offset), "content continues where it ended")
        case .complete: require(head.status == 416, "nothing is missing of what has no more")
        case .begin:
            require(
                head.lengthFault == nil || head.hasTransferEncoding
                    || !(200..<300).contains(head.status),
                "a length counts"
            )
        case .redirect(let location): require(!location.isEmpty, "a redirect leads to a place")
        default: break
        }
    }

    // MARK: Requests

    private static func checkRequest(_ value: String) {
        for size: Int64 in [0, 1, 1000, .max - 1] {
            if case .part(let range) = RangeSelection(value, size: size) {
                require(
                    !range.isEmpty && range.lowerBound >= 0 && range.upperBound <= size,
                    "a part is in the whole"
                )
            }
        }
        if case .list(let tags) = EntityTagCondition(value) {
            for tag in tags where !tag.opaque.unicodeScalars.contains("\u{FFFD}") {
                require(
                    EntityTagCondition(tag.description) == .list([tag]),
                    "a tag is written as it was read"
                )
            }
        }
        let modified = HTTPDate(seconds: 784_111_777)
        let current = Validators(tag: EntityTag(opaque: "a"), modified: modified)
        for keyPath: WritableKeyPath<Preconditions, String?> in [
            \.ifMatch, \.ifNoneMatch, \.ifModifiedSince, \.ifUnmodifiedSince, \.ifRange,
        ] {
            var conditions = Preconditions()
            conditions[keyPath: keyPath] = value
            _ = conditions.outcome(for: current, at: modified)
        }
        guard let date = HTTPDate(value, readAt: modified) else { return }
        let text = date.description
        require(
            HTTPDate(text, readAt: modified) == date,
            "the date '\(text)' is written as it was read"
        )
    }

    private static func checkPath(_ text: String) {
        guard let path = ServedPath(text) else { return }
        for name in path.names {
            require(
                !name.isEmpty && name != "." && name != ".." && !name.utf8.contains(0x2F),
                "a name is one"
            )
        }
        let encoded = path.names.map { "/" + $0.percentEncoded() }.joined()
        let again = ServedPath(encoded + (path.hasTrailingSlash ? "/" : ""))
        require(again == path, "a path is written as it was read")
    }

    private static func checkURL(_ text: String) {
        let base = parsed { () throws(TransferError) in
            try TransferURL("https://user:secret@cdn.example.org/a/b?c")
        }
        for url in [
            base?.resolving(text), parsed { () throws(TransferError) in try TransferURL(text) },
        ] {
            guard let url else { continue }
            require(["http", "https", "file"].contains(url.scheme), "a URL can be fetched")
            let again = parsed { () throws(TransferError) in try TransferURL(url.display) }
            require(
                again?.authority == url.authority && again?.scheme == url.scheme,
                "'\(url.display)' leads where '\(url.text)' does"
            )
            require(!url.display.contains("secret"), "a password is not shown")
        }
    }

    // MARK: Seeds

    static func seeds() -> [[UInt8]] {
        utf8(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
            "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 100-999/1000\r\nContent-Length: 900\r\n\r\n",
            "HTTP/1.1 206 X\r\nContent-Range: bytes 0-999/1000\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
                + "Date: Sunday, 06-Nov-94 08:49:38 GMT\r\n\r\n",
            "HTTP/1.1 416 X\r\nContent-Range: bytes */1000\r\nETag: W/\"x\"\r\n\r\n",
            "HTTP/1.1 302 Found\r\nLocation: ../x?y#z\r\nContent-Type: text/html; charset=x\r\n\r\n",
            "HTTP/1.1 503 X\r\nRetry-After: Sun Nov  6 08:49:37 1994\r\nDate: Sun, 06 Nov 1994 08:00:00 GMT\r\n\r\n",
            "HTTP/1.1 429 X\r\nRetry-After: 120\r\nX-Folded: a\r\n b\r\nContent-Encoding: gzip\r\n\r\n",
            "GET: /a%20b/c/\r\nRange: bytes=0-99\r\nIf-None-Match: \"a\", W/\"b\"\r\nIf-Range: \"a\"\r\n",
            "Range: bytes=-500\nRange: bytes=9-\nLocation: //other.example/x\nLocation: http://[::1]:80/\n"
        )
    }

    static let words = utf8(
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 206 ",
        "HTTP/2 ",
        "\r\n\r\n",
        "\r\n ",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\n",
        "Content-Range: bytes ",
        "bytes */",
        "Content-Type: text/html",
        "Content-Encoding: ",
        "ETag: \"",
        "Last-Modified: ",
        "Date: ",
        "Location: ",
        "Retry-After: ",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "bytes=",
        "W/\"",
        "%2e%2e",
        "%2F",
        "%00",
        "://",
        "file:///",
        "file:",
        "@",
        "[::1]",
        "9223372036854775807"
    )
}
