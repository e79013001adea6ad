import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// The body of an upload: as many bytes of a file as it had to begin with.
///
/// It belongs to the engine's thread. The file is read in order and by small pieces, which the kernel
/// reads ahead of: that is why the thread may do it.
@safe final class UploadSource {
    /// How many bytes there are to send.
    let size: Int64
    /// How many bytes were handed over, however often.
    private(set) var total: Int64 = 0
    /// Why the file cannot be sent any more.
    private(set) var failure: TransferError?
    private let file: File
    /// The leave that the last bytes wait for.
    let leave: LastBytes?
    private let ledger: UploadLedger
    /// The offset of the first byte of the current request.
    private var start: Int64 = 0
    /// The offset behind its last byte.
    private var end: Int64 = 0
    private let report: @Sendable (TransferEvent) -> Void
    private var position: Int64 = 0
    private var reported: Int64 = 0
    private var buffer: [UInt8] = []
    /// The body of the current request where that is none of the file.
    private var text: [UInt8]?

    /// Takes over a file, which must be a regular one, and reports what of it was sent.
    ///
    /// The last bytes wait for `leave`, if there is one.
    init(
        _ file: consuming File,
        leave: LastBytes?,
        ledger: UploadLedger,
        _ report: @escaping @Sendable (TransferEvent) -> Void
    ) throws(TransferError) {
        do throws(FileError) {
            let status = try file.status()
            guard status.kind == .file else {
                throw FileError("read", path: file.path, errno: .invalidArgument)
            }
            size = status.size
        } catch {
            throw .storage(error)
        }
        self.file = file
        self.leave = leave
        self.ledger = ledger
        self.report = report
    }

    /// A step of reading the body.
    enum Piece {
        /// So many bytes; 0 at the end.
        case bytes(Int)
        /// The last bytes wait for leave to be sent.
        case wait
        /// The file became shorter or cannot be read, or its last bytes are not to be sent.
        case failure
    }

    /// Whether the bytes wait for what is written down, the last ones for leave to be sent.
    var isWaiting: Bool { ledger.isWriting || leave?.isAsked ?? false }

    /// The bytes of the body of the current request.
    var rest: Int64 { end - start }

    /// The offset of the next byte.
    var offset: Int64 { position }

    /// Whether the last byte of the current request was handed over.
    var isSent: Bool { position == end }

    /// Begins the body of a request with a range of the file.
    func begin(_ range: Range<Int64>) {
        (start, end, text) = (range.lowerBound, range.upperBound, nil)
        seek(to: 0)
        if start > 0 { report(.sent(ByteCount(start))) }
    }

    /// Begins the body of a request that follows the whole file; its bytes count for nothing.
    func begin(_ text: [UInt8]) {
        (start, end, self.text) = (0, Int64(text.count), text)
        seek(to: 0)
    }

    /// Goes on at another place of the current request's body, at its beginning where it is sent again.
    func seek(to offset: Int64) {
        position = start + offset
        reported = position
    }

    /// Reads the next bytes.
    func read(into target: UnsafeMutableRawBufferPointer) -> Piece {
        let count = Int(min(Int64(target.count), end - position))
        guard count > 0 else { return .bytes(0) }
        if ledger.isWriting { return .wait }
        if let error = ledger.failure {
            failure = error
            return .failure
        }
        if let text {
            unsafe target.copyBytes(from: text[Int(position)...].prefix(count))
            position += Int64(count)
            if isSent { report(.sent(ByteCount(size))) }
            return .bytes(count)
        }
        if let leave, position + Int64(count) == size {
            switch leave.ask() {
            case nil: return .wait
            case .success: break
            case .failure(let error):
                failure = error
                return .failure
            }
        }
        if buffer.count != count { buffer = [UInt8](repeating: 0, count: count) }
        do throws(FileError) {
            let read = try file.read(into: &buffer, at: position)
            guard read > 0 else {
                failure = .wrongSize(
                    url: file.path.string,
                    expected: ByteCount(size),
                    actual: ByteCount(try file.status().size)
                )
                return .failure
            }
            unsafe target.copyBytes(from: buffer[..<read])
            advance(by: Int64(read))
            return .bytes(read)
        } catch {
            failure = .storage(error)
            return .failure
        }
    }

    private func advance(by count: Int64) {
        position += count
        total += count
        guard position - reported >= Self.reportInterval || isSent else { return }
        reported = position
        report(.sent(ByteCount(position)))
    }

    private static let reportInterval: Int64 = 1 << 18
}

/// The leave to send the last bytes of a body, which is asked for once, and again after ``reset()``.
final class LastBytes: Sendable {
    private enum State {
        case unasked
        case asked(Task<Void, Never>?)
        case answered(Result<Void, TransferError>)
    }

    private let state = Mutex(State.unasked)
    private let body: @Sendable () async throws(TransferError) -> Void

    init(_ body: @escaping @Sendable () async throws(TransferError) -> Void) { self.body = body }

    /// Whether it was asked for and there is no answer yet.
    var isAsked: Bool {
        state.withLock { state in if case .asked = state { true } else { false } }
    }

    /// Returns the answer; without one asks for it, if that was not done yet.
    func ask() -> Result<Void, TransferError>? {
        let (answer, isFirst) = state.withLock { state -> (Result<Void, TransferError>?, Bool) in
            switch state {
            case .answered(let answer): return (answer, false)
            case .asked: return (nil, false)
            case .unasked:
                state = .asked(nil)
                return (nil, true)
            }
        }
        if isFirst {
            let task = Task { await self.answer() }
            state.withLock { state in if case .asked = state { state = .asked(task) } }
        }
        return answer
    }

    /// Waits for the answer, if it was asked for.
    func settle() async {
        let task = state.withLock { state -> Task<Void, Never>? in
            guard case .asked(let task) = state else { return nil }
            return task
        }
        await task?.value
    }

    /// Takes the leave back, so that it is asked for again.
    func reset() { state.withLock { $0 = .unasked } }

    /// Asks for it and waits for the answer; for a body without bytes.
    func wait() async throws(TransferError) {
        await answer()
        try ask()?.get()
    }

    private func answer() async {
        let answer: Result<Void, TransferError>
        do throws(TransferError) {
            answer = .success(try await body())
        } catch {
            answer = .failure(error)
        }
        state.withLock { $0 = .answered(answer) }
    }
}
