import Foundation
import FoundationNetworking
import StageModel
import StageTransfer
import Synchronization

/// Passes the bytes of a response to ``URLSession/AsyncBytes``, limited by a ``ReceiveWindow``.
final class ResponseBytes: Sendable {
    /// Pieces of the body; the stream ends with the error of the task, if there is one.
    typealias Pieces = AsyncThrowingStream<[UInt8], any Error>

    private struct State {
        var response: URLResponse?
        var error: (any Error)?
        var hasEnded = false
        var waiting: CheckedContinuation<URLResponse, any Error>?
        var pieces: Pieces?
    }

    /// Limit on the bytes that were received and not yet read.
    let receiveWindow = ReceiveWindow(limit: .mebibytes(1))
    private let continuation: Pieces.Continuation
    private let state = Mutex(State())

    init() {
        let pieces: Pieces
        (pieces, continuation) = Pieces.makeStream()
        state.withLock { $0.pieces = pieces }
    }

    /// Returns the bytes, once; releasing them abandons the transfer.
    func takePieces() -> Pieces { state.withLock { $0.pieces.take() } ?? Pieces { nil } }

    /// Sets the function that is called when the bytes are no longer read.
    func whenAbandoned(_ cancel: @escaping @Sendable () -> Void) {
        continuation.onTermination = { if case .cancelled = $0 { cancel() } }
    }

    /// Handles the head of the response.
    func begin(_ response: URLResponse) {
        state.withLock { state -> CheckedContinuation<URLResponse, any Error>? in
            state.response = response
            return state.waiting.take()
        }?
        .resume(returning: response)
    }

    /// Handles the next bytes.
    func add(_ bytes: [UInt8]) { continuation.yield(bytes) }

    /// Handles the end of the response.
    func end(_ error: (any Error)?) {
        let waiting = state.withLock { state in
            state.hasEnded = true
            state.error = error
            return state.waiting.take()
        }
        waiting?.resume(throwing: error ?? URLError(.badServerResponse))
        continuation.finish(throwing: error)
    }

    /// Waits for the head of the response and returns it.
    func response() async throws -> URLResponse {
        try await withCheckedThrowingContinuation { continuation in
            let known = state.withLock { state -> Result<URLResponse, any Error>? in
                if let response = state.response { return .success(response) }
                if state.hasEnded { return .failure(state.error ?? URLError(.badServerResponse)) }
                state.waiting = continuation
                return nil
            }
            if let known { continuation.resume(with: known) }
        }
    }
}

extension URLSession {
    /// The bytes of a response, in order, as they arrive.
    ///
    /// The server waits while more than about 1 MiB is unread. Cancelling the task that reads them, or releasing all
    /// iterators, cancels the transfer. The sequence can be iterated once.
    public struct AsyncBytes: AsyncSequence, Sendable {
        /// A byte.
        public typealias Element = UInt8

        /// The transfer.
        public let task: URLSessionDataTask
        let pieces: ResponseBytes.Pieces
        let receiveWindow: ReceiveWindow

        /// Returns an iterator of the bytes.
        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(pieces: pieces.makeAsyncIterator(), receiveWindow: receiveWindow)
        }

        /// Iterates over bytes, most of which are already in memory.
        public struct AsyncIterator: AsyncIteratorProtocol {
            private var pieces: ResponseBytes.Pieces.Iterator
            private let receiveWindow: ReceiveWindow
            private var piece: [UInt8] = []
            private var position = 0

            init(pieces: ResponseBytes.Pieces.Iterator, receiveWindow: ReceiveWindow) {
                self.pieces = pieces
                self.receiveWindow = receiveWindow
            }

            /// Returns the next byte, or `nil` after the last.
            ///
            /// - Throws: The error of the task.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws -> UInt8? {
                while position == piece.count {
                    receiveWindow.remove(piece.count)
                    (piece, position) = ([], 0)
                    guard let next = try await pieces.next(isolation: actor) else {
                        // A stream whose reader is cancelled ends as a complete one does.
                        if Task.isCancelled { throw URLError(.cancelled) }
                        return nil
                    }
                    piece = next
                }
                defer { position += 1 }
                return piece[position]
            }
        }

        /// The lines of the text, decoded as UTF-8; empty lines are omitted, as on Apple's systems.
        public var lines: AsyncLines { AsyncLines(bytes: self) }
    }

    /// The lines of a response.
    ///
    /// A line ends with CR, LF, or both, with U+000B, U+000C or U+0085, or with one of Unicode's separators of lines
    /// and paragraphs, U+2028 and U+2029, as in Apple's `AsyncLineSequence`.
    public struct AsyncLines: AsyncSequence, Sendable {
        /// A line without its end.
        public typealias Element = String

        let bytes: AsyncBytes

        /// Returns an iterator of the lines.
        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(bytes: bytes.makeAsyncIterator())
        }

        /// Iterates over lines.
        public struct AsyncIterator: AsyncIteratorProtocol {
            private var bytes: AsyncBytes.AsyncIterator

            init(bytes: AsyncBytes.AsyncIterator) { self.bytes = bytes }

            /// Returns the next line that is not empty; `nil` after the last.
            ///
            /// - Throws: The error of the task.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws -> String? {
                var line: [UInt8] = []
                while let byte = try await bytes.next(isolation: actor) {
                    line.append(byte)
                    let end = Self.lengthOfEnd(of: line)
                    guard end > 0 else { continue }
                    line.removeLast(end)
                    // Nothing is left of an empty line, or of an LF after a CR.
                    if !line.isEmpty { return String(decoding: line, as: UTF8.self) }
                }
                return line.isEmpty ? nil : String(decoding: line, as: UTF8.self)
            }

            /// Returns the number of bytes at the end of `line` that end it; 0 if it continues.
            private static func lengthOfEnd(of line: [UInt8]) -> Int {
                guard let last = line.last else { return 0 }
                return switch last {
                case 0x0A...0x0D: 1
                // U+0085 in UTF-8.
                case 0x85: line.suffix(2).first == 0xC2 ? 2 : 0
                // U+2028 and U+2029.
                case 0xA8, 0xA9: line.suffix(3).starts(with: [0xE2, 0x80]) ? 3 : 0
                default: 0
                }
            }
        }
    }
}
