import FoundationEssentials
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// Connection to the daemon for one request and its response.
///
/// Its methods block and belong to one thread; ``close()`` may be called from any thread.
package final class ControlConnection: Sendable {
    /// Maximum bytes of a response that is read into memory as a whole.
    package static let answerLimit = 256 << 20

    private let socket: UnixSocket
    private let timeout: Mutex<Duration?>

    /// Connects to the daemon at `path`, after checking that the listening process belongs to root or, unless this
    /// process is root, to this user.
    ///
    /// Sends nothing before the check. `timeout` is the time without data after which the daemon counts as lost.
    ///
    /// - Throws: ``ControlError/untrusted(_:user:)`` for a process of another user.
    package init(path: String, timeout: Duration? = nil) throws(ControlError) {
        do throws(FileError) {
            socket = try UnixSocket.connect(to: FilePath(path), timeout: timeout)
        } catch {
            throw ControlError(connecting: error, timeout: timeout)
        }
        self.timeout = Mutex(timeout)
        let user: UInt32
        do throws(FileError) {
            user = try socket.peer()
        } catch {
            throw .system(error)
        }
        guard Self.isTrusted(user) else { throw .untrusted(path, user: user) }
    }

    /// Returns whether this process trusts a daemon of the user.
    private static func isTrusted(_ user: UInt32) -> Bool {
        user == 0 || user == UserIdentity.current.user
    }

    /// Closes the connection.
    ///
    /// A blocked method returns at once with ``ControlError/lost(_:after:)``.
    package func close() { socket.shutDown() }

    /// Sends a request, and returns the response.
    ///
    /// A response of type `String` is the body as it stands; others are JSON. Call it only once.
    package func answer<Answer>(
        to request: ControlRequest<Answer>
    ) throws(ControlError) -> Answer {
        var answer = try ask(request)
        let content = try answer.readAll(limit: Self.answerLimit)
        if let nothing = NoContent() as? Answer { return nothing }
        if let text = String(validating: content, as: UTF8.self) as? Answer { return text }
        return try Self.decode(Answer.self, from: content)
    }

    /// Requests an event stream; returns it after the daemon has accepted.
    ///
    /// Call it only once.
    package func events(
        _ request: ControlRequest<SessionEvent>
    ) throws(ControlError) -> ControlEvents {
        let body = try ask(request)
        // Three missed heartbeats mean that the daemon hangs.
        try setTimeout(ControlFormat.heartbeat * 3)
        return ControlEvents(self, body: body)
    }

    /// Sets the time without data after which the daemon counts as lost.
    private func setTimeout(_ timeout: Duration) throws(ControlError) {
        do throws(FileError) {
            try socket.setTimeout(timeout)
        } catch {
            throw .system(error)
        }
        self.timeout.withLock { $0 = timeout }
    }

    /// Path of the daemon's socket.
    var path: String { socket.path.string }

    /// Sends a request, and reads the status of the response.
    ///
    /// - Throws: ``ControlError/refused(_:)`` for a status of 400 or more.
    private func ask<Answer>(
        _ request: ControlRequest<Answer>
    ) throws(ControlError) -> ControlResponse {
        let bytes = try request.bytes()
        do throws(FileError) {
            try socket.send(bytes)
        } catch {
            // A daemon that refuses a large body responds before it has read it, so the response can be read despite
            // the error.
        }
        var body = ControlResponse(self)
        let status = try body.readStatus()
        guard status < 400 else {
            let content = try body.readAll(limit: 1 << 20)
            throw .refused(Self.refusal(for: status, body: content))
        }
        guard status < 300 else { throw .malformed("it has the status \(status)") }
        return body
    }

    /// Decodes the body of a refusal, or derives the refusal from the status.
    private static func refusal(for status: Int, body content: [UInt8]) -> ControlRefusal {
        // A body in another format was not written by the daemon, but by a proxy in front of it.
        if let refusal = try? ControlFormat.decode(ControlRefusal.self, from: Data(content)) {
            return refusal
        }
        let code: ControlRefusal.Code =
            switch status {
            case 403: .forbidden
            case 404: .notFound
            case 409: .conflict
            case 413: .tooLarge
            case 422: .invalid
            case 429: .quota
            case 507: .storage
            case 500...: .unavailable
            default: .malformed
            }
        return ControlRefusal(code, message: "the daemon refused with status \(status)")
    }

    /// Decodes a value of a response.
    static func decode<Value: Decodable>(
        _ type: Value.Type,
        from content: [UInt8]
    ) throws(ControlError) -> Value {
        do {
            return try ControlFormat.decode(type, from: Data(content))
        } catch let error as DecodingError {
            throw .malformed(error.text(in: content))
        } catch {
            throw .malformed("\(error)")
        }
    }
}

extension ControlConnection {
    /// Waits for data from the daemon; returns an empty array at the end of the connection.
    fileprivate func receive() throws(ControlError) -> [UInt8] {
        do throws(FileError) {
            return try socket.receive()
        } catch {
            let isSilent = error.errno == .resourceTemporarilyUnavailable
            throw .lost(path, after: isSilent ? timeout.withLock { $0 } : nil)
        }
    }
}

/// Response of the daemon, read incrementally.
struct ControlResponse {
    private let connection: ControlConnection
    private var parser = ResponseParser()
    private var parts: ArraySlice<ResponseParser.Part> = []

    /// Creates the response to the request that was sent over `connection`.
    init(_ connection: ControlConnection) { self.connection = connection }

    /// Waits for the status.
    mutating func readStatus() throws(ControlError) -> Int {
        guard case .status(let status) = try nextPart() else {
            throw .malformed("it has no status")
        }
        return status
    }

    /// Waits for bytes of the body; returns `nil` at its end.
    mutating func read() throws(ControlError) -> [UInt8]? {
        guard case .body(let bytes) = try nextPart() else { return nil }
        return bytes
    }

    /// Waits for the whole body.
    mutating func readAll(limit: Int) throws(ControlError) -> [UInt8] {
        var content: [UInt8] = []
        while let bytes = try read() {
            content += bytes
            guard content.count <= limit else { throw .tooLarge(limit: limit) }
        }
        return content
    }

    private mutating func nextPart() throws(ControlError) -> ResponseParser.Part {
        while parts.isEmpty {
            let bytes = try connection.receive()
            if bytes.isEmpty {
                guard parser.isComplete else { throw .lost(connection.path) }
                return .end
            }
            parts = try parser.read(bytes)[...]
        }
        let part = parts.removeFirst()
        // Keeps returning the end if asked again.
        if part == .end { parts = [.end] }
        return part
    }
}
