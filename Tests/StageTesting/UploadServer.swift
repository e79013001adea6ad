import Glibc
import Synchronization

/// A server that takes a body in parts: resumable uploads (the draft's interop version 6) and tus 1.0.
///
/// Uploads are created at any path but those below `/uploads/`. Each connection serves one request.
package final class UploadServer: Sendable {
    /// A partially received body.
    private struct Upload {
        var content: [UInt8] = []
        var size: Int
        var isTus: Bool
        /// The number of the latest request: earlier requests add no more bytes.
        var request = 0
    }

    private struct State {
        var uploads: [String: Upload] = [:]
        var heads: [RequestHead] = []
        var finished: [[UInt8]] = []
        var received = 0
        var cuts: [Int] = []
        var lostAnswers = 0
        /// The microseconds of a pause after every 64 KiB of a body.
        var pause: UInt32 = 0
        var areAnswersHeld = false
        var progressAnswers = 0
        var isGuarded = false
        var replacements: [@Sendable (RequestHead) -> String?] = []
        var readReplacements: [String] = []
    }

    /// The port that the server listens on.
    package let port: Int
    /// `true` if the server supports resumable uploads.
    package let speaksDraft: Bool
    private let listener: Listener
    private let state = Mutex(State())

    /// Starts a server; without `speaksDraft`, it does not support the draft.
    package init(speaksDraft: Bool = true) throws {
        let bound = try Socket.listen()
        listener = Listener(bound.listener)
        port = bound.port
        self.speaksDraft = speaksDraft
        listener.serveOne { [self] head, socket in serve(head, &socket) }
    }

    /// The URL of a path.
    package func url(_ path: String, host: String = "127.0.0.1") -> String {
        "http://\(host):\(port)\(path)"
    }

    /// Cuts the connections of the next requests with a body, each after one of the numbers of bytes.
    package func cut(after counts: Int...) { state.withLock { $0.cuts += counts } }

    /// Pauses after every 64 KiB while bodies are read, or not if `false`.
    package func slowDown(_ isSlow: Bool = true, milliseconds: Int = 2) {
        state.withLock { $0.pause = isSlow ? UInt32(milliseconds) * 1000 : 0 }
    }

    /// Responds to bodies of requests without credentials with a challenge, and discards them.
    package func challenge() { state.withLock { $0.isGuarded = true } }

    /// Sends `count` interim responses for every 64 KiB of a body.
    package func tellProgress(_ count: Int) { state.withLock { $0.progressAnswers = count } }

    /// Delays responses to complete bodies until this is called with `false`.
    package func holdAnswers(_ areHeld: Bool = true) {
        state.withLock { $0.areAnswersHeld = areHeld }
    }

    /// Discards the responses to the next `count` complete bodies.
    package func loseAnswers(_ count: Int) { state.withLock { $0.lostAnswers = count } }

    /// Responds to requests with the text that `body` returns for them, including the head, unless it is `nil`.
    package func replace(_ body: @escaping @Sendable (RequestHead) -> String?) {
        state.withLock { $0.replacements.append(body) }
    }

    /// Forgets all uploads that are not complete.
    package func forget() { state.withLock { $0.uploads = [:] } }

    /// The number of uploads that were neither finished nor deleted.
    package var unfinished: Int {
        state.withLock { $0.uploads.values.count { $0.content.count < $0.size } }
    }

    /// The heads of all requests in order.
    package var requests: [RequestHead] { state.withLock { $0.heads } }

    /// The methods of the requests whose replaced responses the client has read, in order.
    package var readReplacements: [String] { state.withLock { $0.readReplacements } }

    /// The methods of all requests in order.
    package var methods: [String] { requests.map(\.method) }

    /// The bodies that were complete, in order.
    package var finished: [[UInt8]] { state.withLock { $0.finished } }

    /// The number of received body bytes, including bytes that were received again.
    package var received: Int { state.withLock { $0.received } }

    private func serve(_ head: RequestHead, _ socket: inout Socket) {
        let replacements = state.withLock { state in
            state.heads.append(head)
            return state.replacements
        }
        // A replacement may call methods of the server, so the lock is not held.
        if let replacement = replacements.lazy.compactMap({ $0(head) }).first {
            if !replacement.isEmpty, socket.send(Array(replacement.utf8)) {
                // The client must not send another request on this connection.
                socket.endStream()
                socket.waitUntilRead()
                state.withLock { $0.readReplacements.append(head.method) }
            }
            return socket.lingerOn()
        }
        switch (head.method, head.target.hasPrefix("/uploads/")) {
        case ("HEAD", true): tellOffset(head, socket)
        case ("PATCH", true): take(head, at: head.target, &socket)
        case ("DELETE", true): delete(head, socket)
        case (_, true): socket.answer(405)
        default: create(head, &socket)
        }
    }

    private func create(_ head: RequestHead, _ socket: inout Socket) {
        let path = state.withLock { "/uploads/\($0.uploads.count + $0.finished.count + 1)" }
        if head["tus-resumable"] != nil {
            guard let size = head["upload-length"].flatMap({ Int($0) }) else {
                return socket.answer(400)
            }
            state.withLock { $0.uploads[path] = Upload(size: size, isTus: true) }
            return socket.answer(201, ["Tus-Resumable: 1.0.0", "Location: \(path)"])
        }
        let size = head["content-length"].flatMap { Int($0) } ?? 0
        state.withLock { $0.uploads[path] = Upload(size: size, isTus: false) }
        if speaksDraft, head["upload-draft-interop-version"] == "6",
            head["upload-complete"] == "?1"
        {
            let interim =
                "HTTP/1.1 104 Upload Resumption Supported\r\nUpload-Draft-Interop-Version: 6\r\n"
                + "Location: \(url(path))\r\n\r\n"
            _ = socket.send(Array(interim.utf8))
        }
        take(head, at: path, &socket)
    }

    private func delete(_ head: RequestHead, _ socket: Socket) {
        let upload = state.withLock { $0.uploads.removeValue(forKey: head.target) }
        guard let upload else { return socket.answer(404) }
        socket.answer(204, upload.isTus ? ["Tus-Resumable: 1.0.0"] : [])
    }

    private func tellOffset(_ head: RequestHead, _ socket: Socket) {
        let found = state.withLock { state in
            state.uploads[head.target]?.request += 1
            return state.uploads[head.target]
        }
        guard let upload = found else { return socket.answer(404) }
        let isComplete = upload.content.count == upload.size
        let offset = "Upload-Offset: \(upload.content.count)"
        if upload.isTus {
            socket.answer(200, ["Tus-Resumable: 1.0.0", offset, "Upload-Length: \(upload.size)"])
        } else {
            socket.answer(204, [offset, "Upload-Complete: ?\(isComplete ? 1 : 0)"])
        }
    }

    /// Appends the body of a request to an upload.
    private func take(_ head: RequestHead, at path: String, _ socket: inout Socket) {
        let found = state.withLock { state in
            state.uploads[path]?.request += 1
            return state.uploads[path]
        }
        guard let upload = found else { return socket.answer(404) }
        if head.method == "PATCH" {
            let type = upload.isTus ? "offset+octet-stream" : "partial-upload"
            guard head["content-type"] == "application/\(type)" else {
                return socket.answer(415)
            }
            guard head["upload-offset"] == "\(upload.content.count)" else {
                return socket.answer(409, ["Upload-Offset: \(upload.content.count)"])
            }
        }
        if head["expect"] != nil { _ = socket.send(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)) }
        let length = head["content-length"].flatMap { Int($0) } ?? 0
        let cut = state.withLock { $0.cuts.isEmpty ? nil : $0.cuts.removeFirst() }
        var taken = 0
        while taken < min(length, cut ?? .max) {
            let bytes = socket.readBody(min(1 << 16, min(length, cut ?? .max) - taken))
            if bytes.isEmpty { return }
            usleep(state.withLock { $0.pause })
            taken += bytes.count
            let isLatest = state.withLock { state in
                state.received += bytes.count
                guard state.uploads[path]?.request == upload.request else { return false }
                state.uploads[path]?.content += bytes
                return true
            }
            guard isLatest else { return }
            let progress = "HTTP/1.1 104 Upload\r\nUpload-Offset: \(taken)\r\n\r\n"
            let answers = String(repeating: progress, count: state.withLock { $0.progressAnswers })
            if !answers.isEmpty { _ = socket.send(Array(answers.utf8)) }
        }
        if taken < length {
            // A reset may overtake the interim response, which the client must receive.
            socket.waitUntilRead()
            return socket.resetOnClose()
        }
        if head["authorization"] == nil, state.withLock({ $0.isGuarded }) {
            forget()
            return socket.answer(401, ["WWW-Authenticate: Basic realm=\"r\""])
        }
        finish(path, socket)
    }

    private func finish(_ path: String, _ socket: Socket) {
        let (upload, isLost) = state.withLock { state in
            let upload = state.uploads[path]
            if let upload, upload.content.count == upload.size {
                state.finished.append(upload.content)
            }
            let isLost = state.lostAnswers > 0
            if isLost { state.lostAnswers -= 1 }
            return (upload, isLost)
        }
        while state.withLock({ $0.areAnswersHeld }) { usleep(10_000) }
        guard let upload, !isLost else { return socket.resetOnClose() }
        let offset = "Upload-Offset: \(upload.content.count)"
        if upload.isTus {
            socket.answer(204, ["Tus-Resumable: 1.0.0", offset])
        } else {
            socket.answer(201, [offset], body: "done")
        }
    }
}
