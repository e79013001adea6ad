import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// Body of an upload: a file, with the size that it had when the upload began.
///
/// Used on the engine's thread only, which may read the file because it reads small pieces in order, and the kernel
/// reads ahead.
@safe final class UploadSource {
    /// Size of the body in bytes.
    let size: Int64
    /// Number of bytes read for sending, repetitions included.
    private(set) var total: Int64 = 0
    /// Error that prevents further reading.
    private(set) var failure: TransferError?
    private let file: File
    /// Permission that the last bytes wait for.
    let permission: LastBytesPermission?
    private let stateWriter: UploadStateWriter
    /// Offset of the first byte of the current request.
    private var start: Int64 = 0
    /// Offset after the last byte of the current request.
    private var end: Int64 = 0
    private let report: @Sendable (TransferEvent) -> Void
    private var position: Int64 = 0
    private var reported: Int64 = 0
    private var buffer: [UInt8] = []
    /// Body of the current request if it is not from the file.
    private var text: [UInt8]?

    /// Takes ownership of a regular file, and reports the progress of sending it.
    ///
    /// The last bytes wait for `permission`, if there is one.
    init(
        _ file: consuming File,
        permission: LastBytesPermission?,
        stateWriter: UploadStateWriter,
        report: @escaping @Sendable (TransferEvent) -> Void
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
        self.permission = permission
        self.stateWriter = stateWriter
        self.report = report
    }

    /// Result of reading the body.
    enum Piece {
        /// Number of bytes read; 0 at the end.
        case bytes(Int)
        /// The last bytes wait for permission, or the body for a write of the upload's state.
        case wait
        /// The file became shorter or cannot be read, or its last bytes must not be sent.
        case failure
    }

    /// `true` while the body waits for a write of the upload's state, or the last bytes for permission.
    var isWaiting: Bool { stateWriter.isWriting || permission?.isAsked ?? false }

    /// Size of the current request's body in bytes.
    var bodySize: Int64 { end - start }

    /// Number of bytes of the current request's body that were not read yet.
    var unread: Int64 { end - position }

    /// Offset of the next byte.
    var offset: Int64 { position }

    /// `true` if the last byte of the current request was read.
    var isSent: Bool { position == end }

    /// Begins the body of a request with a range of the file.
    func begin(_ range: Range<Int64>) {
        (start, end, text) = (range.lowerBound, range.upperBound, nil)
        seek(to: 0)
        if start > 0 { report(.sent(ByteCount(start))) }
    }

    /// Begins the body of a request that follows the whole file; its bytes are not counted as sent.
    func begin(_ text: [UInt8]) {
        (start, end, self.text) = (0, Int64(text.count), text)
        seek(to: 0)
    }

    /// Moves to an offset in the current request's body, such as its start when libcurl sends it again.
    func seek(to offset: Int64) {
        position = start + offset
        reported = position
    }

    /// Reads the next bytes.
    func read(into target: UnsafeMutableRawBufferPointer) -> Piece {
        let count = Int(min(Int64(target.count), end - position))
        guard count > 0 else { return .bytes(0) }
        if stateWriter.isWriting { return .wait }
        if let error = stateWriter.failure {
            failure = error
            return .failure
        }
        if let text {
            unsafe target.copyBytes(from: text[Int(position)...].prefix(count))
            position += Int64(count)
            if isSent { report(.sent(ByteCount(size))) }
            return .bytes(count)
        }
        if let permission, position + Int64(count) == size {
            switch permission.ask() {
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
        if position - reported >= Self.reportInterval || isSent { reportProgress() }
    }

    /// Reports the number of bytes of the file that were sent, unless that was reported already.
    func reportProgress() {
        guard text == nil, position > reported else { return }
        reported = position
        report(.sent(ByteCount(position)))
    }

    private static let reportInterval: Int64 = 1 << 18
}

/// Permission to send the last bytes of a body, requested once, and again after ``reset()``.
final class LastBytesPermission: Sendable {
    private enum State {
        case unasked
        case asked(Task<Void, Never>?)
        case answered(Result<Void, TransferError>)
    }

    private let state = Mutex(State.unasked)
    private let body: @Sendable () async throws(TransferError) -> Void
    private let wake: @Sendable () -> Void

    /// Creates a permission that `body` gives; `wake` is called after that.
    init(
        wake: @escaping @Sendable () -> Void,
        _ body: @escaping @Sendable () async throws(TransferError) -> Void
    ) {
        self.wake = wake
        self.body = body
    }

    /// `true` while the request for permission is pending.
    var isAsked: Bool {
        state.withLock { state in if case .asked = state { true } else { false } }
    }

    /// Returns the result; if there is none, requests permission unless that is pending, and returns `nil`.
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

    /// Waits for a pending request.
    func settle() async {
        let task = state.withLock { state -> Task<Void, Never>? in
            guard case .asked(let task) = state else { return nil }
            return task
        }
        await task?.value
    }

    /// Revokes the permission, so that it is requested again.
    func reset() { state.withLock { $0 = .unasked } }

    /// Requests permission and waits for the result; for an empty body.
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
        wake()
    }
}
