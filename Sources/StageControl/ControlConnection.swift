import FoundationEssentials
import StageSystem
import Synchronization
import SystemPackage

/// A connection to the daemon that carries one question and its answer.
///
/// Its calls block; one thread makes them, and any thread may ``close()``.
public final class ControlConnection: Sendable {
    /// The most bytes that an answer has which is read whole.
    public static let answerLimit = 256 << 20

    private let socket: UnixSocket
    private let patience: Mutex<Duration?>

    /// Connects to the daemon at `path`, and makes sure that the process that listens there is root's or
    /// this user's own; for root, that it is root's.
    ///
    /// Nothing is sent before that is known. With `patience` the daemon counts as lost after so many
    /// whole seconds without a byte of it.
    ///
    /// - Throws: ``ControlError/untrusted(_:user:)`` for a process of another user.
    public init(path: String, patience: Duration? = nil) throws(ControlError) {
        do throws(FileError) {
            let seconds = Int(patience?.components.seconds ?? 0)
            socket = try UnixSocket.connect(to: FilePath(path), patience: seconds)
        } catch {
            throw ControlError(connecting: error, patience: patience)
        }
        self.patience = Mutex(patience)
        let user: UInt32
        do throws(FileError) {
            user = try socket.peer()
        } catch {
            throw .system(error)
        }
        guard Self.isTrusted(user) else { throw .untrusted(path, user: user) }
    }

    /// Whether this process believes a daemon of the user.
    private static func isTrusted(_ user: UInt32) -> Bool {
        user == 0 || user == UserIdentity.current.user
    }

    /// Ends the connection; what waits for the daemon returns at once, with ``ControlError/lost(_:)``.
    public func close() { socket.shutDown() }

    /// Asks, and returns the answer.
    ///
    /// To be called once.
    public func answer<Answer>(
        to request: ControlRequest<Answer>
    ) throws(ControlError) -> Answer {
        var answer = try ask(request)
        let content = try answer.readAll(limit: Self.answerLimit)
        if let nothing = NoContent() as? Answer { return nothing }
        return try Self.decode(Answer.self, content)
    }

    /// Asks for events, and returns them as they come once the daemon has agreed.
    ///
    /// To be called once.
    public func events(
        _ request: ControlRequest<SessionEvent>
    ) throws(ControlError) -> ControlEvents {
        let body = try ask(request)
        // Three heartbeats that did not come are a daemon that hangs.
        try setPatience(ControlFormat.heartbeat * 3)
        return ControlEvents(self, body)
    }

    /// Has the daemon count as lost after so many whole seconds without a byte of it.
    private func setPatience(_ patience: Duration) throws(ControlError) {
        do throws(FileError) {
            try socket.setPatience(seconds: Int(patience.components.seconds))
        } catch {
            throw .system(error)
        }
        self.patience.withLock { $0 = patience }
    }

    /// The path of the daemon's socket.
    var path: String { socket.path.string }

    /// Sends a question and reads the status of the answer.
    ///
    /// - Throws: ``ControlError/refused(_:)`` where that is one of 400 or more.
    private func ask<Answer>(
        _ request: ControlRequest<Answer>
    ) throws(ControlError) -> ControlBody {
        let bytes = try request.bytes()
        do throws(FileError) {
            try socket.send(bytes)
        } catch {
            // A daemon that refuses a large body does so before it has read it: its words are there.
        }
        var body = ControlBody(self)
        let status = try body.readStatus()
        guard status < 400 else {
            let content = try body.readAll(limit: 1 << 20)
            throw .refused(Self.refusal(status, content))
        }
        guard status < 300 else { throw .malformed("it has the status \(status)") }
        return body
    }

    /// The words of a refusal; made of the status where the body has none.
    private static func refusal(_ status: Int, _ content: [UInt8]) -> ControlRefusal {
        // Not the daemon's words: whoever sits in front of it wrote them.
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
        return ControlRefusal(code, "the daemon refused with status \(status)")
    }

    /// Reads a value of an answer.
    static func decode<Value: Decodable>(
        _ type: Value.Type,
        _ content: [UInt8]
    ) throws(ControlError) -> Value {
        do {
            return try ControlFormat.decode(type, from: Data(content))
        } catch {
            throw .malformed("\(error)")
        }
    }
}

extension ControlConnection {
    /// Waits for bytes of the daemon and returns them; none once it has ended the connection.
    fileprivate func receive() throws(ControlError) -> [UInt8] {
        do throws(FileError) {
            return try socket.receive()
        } catch {
            let isSilent = error.errno == .resourceTemporarilyUnavailable
            throw .lost(path, after: isSilent ? patience.withLock { $0 } : nil)
        }
    }
}

/// The answer of a daemon as it arrives.
struct ControlBody {
    private let connection: ControlConnection
    private var parser = AnswerParser()
    private var parts: ArraySlice<AnswerParser.Part> = []

    /// Creates the answer to what was sent by `connection`.
    init(_ connection: ControlConnection) { self.connection = connection }

    /// Waits for the status.
    mutating func readStatus() throws(ControlError) -> Int {
        guard case .status(let status) = try nextPart() else {
            throw .malformed("it has no status")
        }
        return status
    }

    /// Waits for bytes of the body; `nil` at its end.
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

    private mutating func nextPart() throws(ControlError) -> AnswerParser.Part {
        while parts.isEmpty {
            let bytes = try connection.receive()
            if bytes.isEmpty {
                guard parser.isComplete else { throw .lost(connection.path) }
                return .end
            }
            parts = try parser.read(bytes)[...]
        }
        let part = parts.removeFirst()
        // What is asked for once more after the end is the end again.
        if part == .end { parts = [.end] }
        return part
    }
}
