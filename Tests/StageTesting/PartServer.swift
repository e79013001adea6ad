import Glibc
package import StageModel
import Synchronization

/// A server that takes one file in parts, as the multipart uploads of S3 do.
///
/// It knows `PUT /part?number=N`, `POST /complete` with the list of the parts, and `DELETE /abort`. Each request needs the signature of its URL, and each connection serves one.
package final class PartServer: Sendable {
    private struct State {
        var parts: [Int: [UInt8]] = [:]
        var order: [Int] = []
        var heads: [RequestHead] = []
        var received = 0
        var cuts: [Int] = []
        /// The microseconds of a pause after every 64 KiB of a part.
        var pause: UInt32 = 0
        /// The number of received bytes after which the pause has half a second.
        var longPauseAfter = Int.max
        var object: [UInt8]?
        var isAborted = false
        var lostCompletions = 0
        var faults: [String] = []
        var replacements: [@Sendable (RequestHead) -> String?] = []
    }

    /// The port that the server listens on.
    package let port: Int
    private let listener: Listener
    private let state = Mutex(State())

    /// Starts a server.
    package init() throws {
        let bound = try Socket.listen()
        listener = Listener(bound.listener)
        port = bound.port
        listener.serveOne { [self] head, socket in serve(head, &socket) }
    }

    /// The URL of a path.
    package func url(_ path: String, host: String = "127.0.0.1") -> String {
        "http://\(host):\(port)\(path)"
    }

    /// The signed requests for content of `size` bytes, in parts of at most `part` bytes.
    package func targets(for size: Int, part: Int, host: String = "127.0.0.1") -> UploadParts {
        let parts = stride(from: 0, to: size, by: part).enumerated().map { index, start in
            UploadParts.Part(
                url: url("/part?number=\(index + 1)&signature=secret", host: host),
                size: ByteCount(min(part, size - start))
            )
        }
        return UploadParts(
            parts: parts,
            completionURL: url("/complete?signature=secret"),
            abortURL: url("/abort?signature=secret")
        )
    }

    /// Cuts the connections of the next parts, each after one of the numbers of bytes.
    package func cut(after counts: [Int]) { state.withLock { $0.cuts += counts } }

    /// Pauses after every 64 KiB of a part, and for half a second each time once `count` bytes were received.
    package func slowDown(milliseconds: Int, withLongPausesAfter count: Int = .max) {
        state.withLock { state in
            state.pause = UInt32(milliseconds) * 1000
            state.longPauseAfter = count
        }
    }

    /// Discards the responses to the next `count` completions, which are carried out.
    package func loseCompletions(_ count: Int) { state.withLock { $0.lostCompletions = count } }

    /// Responds to requests with the text that `body` returns for them, including the head, unless it is `nil`.
    package func replace(_ body: @escaping @Sendable (RequestHead) -> String?) {
        state.withLock { $0.replacements.append(body) }
    }

    /// The heads of all requests in order.
    package var requests: [RequestHead] { state.withLock { $0.heads } }

    /// The methods of all requests in order.
    package var methods: [String] { requests.map(\.method) }

    /// The numbers of the acknowledged parts, in order.
    package var order: [Int] { state.withLock { $0.order } }

    /// The number of received body bytes of parts, including bytes that were received again.
    package var received: Int { state.withLock { $0.received } }

    /// The object that a completion created.
    package var object: [UInt8]? { state.withLock { $0.object } }

    /// `true` if a client has aborted the upload.
    package var isAborted: Bool { state.withLock { $0.isAborted } }

    /// Requests that no client should send.
    package var faults: [String] { state.withLock { $0.faults } }

    private func serve(_ head: RequestHead, _ socket: inout Socket) {
        let replacements = state.withLock { state in
            state.heads.append(head)
            return state.replacements
        }
        if let replacement = replacements.lazy.compactMap({ $0(head) }).first {
            if !replacement.isEmpty { _ = socket.send(Array(replacement.utf8)) }
            return socket.lingerOn()
        }
        guard head.target.hasSuffix("signature=secret") else {
            return refuse(head, "no signature", 403, "AccessDenied", socket)
        }
        let isGone = state.withLock { $0.isAborted || $0.object != nil }
        switch (head.method, head.target.prefix { $0 != "?" }) {
        case (_, _) where isGone: socket.answer(404, body: Self.error("NoSuchUpload"))
        case ("PUT", "/part"): takePart(head, &socket)
        case ("POST", "/complete"): complete(head, &socket)
        case ("DELETE", "/abort"):
            state.withLock { ($0.isAborted, $0.parts) = (true, [:]) }
            socket.answer(204)
        default: refuse(head, "no such request", 405, "MethodNotAllowed", socket)
        }
    }

    private func takePart(_ head: RequestHead, _ socket: inout Socket) {
        let digits = head.target.drop { $0 != "=" }.dropFirst().prefix(while: \.isNumber)
        guard let number = Int(digits), let length = head["content-length"].flatMap({ Int($0) })
        else { return refuse(head, "no number or length", 400, "InvalidRequest", socket) }
        let cut = state.withLock { $0.cuts.isEmpty ? length : $0.cuts.removeFirst() }
        var body: [UInt8] = []
        while body.count < min(length, cut) {
            let bytes = socket.readBody(min(1 << 16, min(length, cut) - body.count))
            if bytes.isEmpty { return }
            body += bytes
            usleep(
                state.withLock { state in
                    state.received += bytes.count
                    return state.received > state.longPauseAfter ? 500_000 : state.pause
                }
            )
        }
        guard body.count == length else { return socket.resetOnClose() }
        let tag = Self.tag(number, body)
        state.withLock { state in
            state.parts[number] = body
            state.order.append(number)
        }
        socket.answer(200, ["ETag: \(tag)"])
    }

    /// An entity tag with characters that XML escapes.
    private static func tag(_ number: Int, _ body: [UInt8]) -> String {
        let sum = body.reduce(UInt64(number)) { ($0 &* 31) &+ UInt64($1) }
        return "\"<\(number)&\(String(sum, radix: 36))>\""
    }

    private func complete(_ head: RequestHead, _ socket: inout Socket) {
        var body: [UInt8] = []
        let length = head["content-length"].flatMap { Int($0) } ?? 0
        while body.count < length {
            let bytes = socket.readBody(length - body.count)
            if bytes.isEmpty { return }
            body += bytes
        }
        let parts = state.withLock { $0.parts }
        let list = parts.keys.sorted().map { number in
            let tag = Self.tag(number, parts[number] ?? [])
                .split(separator: "&", omittingEmptySubsequences: false).joined(separator: "&amp;")
                .map { ["<": "&lt;", ">": "&gt;", "\"": "&quot;"][$0] ?? "\($0)" }.joined()
            return "<Part><PartNumber>\(number)</PartNumber><ETag>\(tag)</ETag></Part>"
        }
        let expected =
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            + "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
            + list.joined() + "</CompleteMultipartUpload>"
        guard body == Array(expected.utf8), parts.keys.sorted() == Array(1...max(parts.count, 1)),
            head["content-type"] == "application/xml"
        else { return refuse(head, "wrong parts", 400, "InvalidPart", socket) }
        let isLost = state.withLock { state in
            state.object = parts.keys.sorted().flatMap { parts[$0] ?? [] }
            state.lostCompletions -= 1
            return state.lostCompletions >= 0
        }
        guard !isLost else { return socket.resetOnClose() }
        // S3 sends blanks until the object exists.
        let result =
            "  \n<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
        socket.answer(200, body: "<?xml version=\"1.0\"?>" + result)
    }

    /// The body of an error.
    package static func error(_ code: String) -> String {
        "<?xml version=\"1.0\"?>\n<Error><Code>\(code)</Code></Error>"
    }

    private func refuse(
        _ head: RequestHead,
        _ fault: String,
        _ status: Int,
        _ code: String,
        _ socket: Socket
    ) {
        state.withLock { $0.faults.append("\(head.method) \(head.target): \(fault)") }
        socket.answer(status, body: Self.error(code))
    }
}
