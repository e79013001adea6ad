public import Foundation
public import FoundationNetworking
import Synchronization

// These calls wait for a response, so a background session refuses them with `URLError.unsupportedURL`. Cancelling
// the calling task cancels the transfer.
extension URLSession {
    /// Returns the response to a request for a URL, with any status.
    ///
    /// - Parameters:
    ///   - url: The URL.
    ///   - delegate: The delegate of this transfer, instead of the session's.
    /// - Returns: The body and the head of the response.
    /// - Throws: `URLError`.
    public func data(
        from url: URL,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (Data, URLResponse) {
        try await data(for: URLRequest(url: url), delegate: delegate)
    }

    /// Returns the response to a request, with any status.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - delegate: The delegate of this transfer, instead of the session's.
    /// - Returns: The body and the head of the response.
    /// - Throws: `URLError`.
    public func data(
        for request: URLRequest,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (Data, URLResponse) {
        try await response {
            makeForegroundData(request, deliveringTo: .data($0), delegate: delegate)
        }
    }

    /// Uploads a file and returns the response, with any status.
    ///
    /// - Parameters:
    ///   - request: The request, whose body is ignored; its default method is `POST`.
    ///   - file: The file, which must not change until this returns.
    ///   - delegate: The delegate of this transfer, instead of the session's.
    /// - Returns: The body and the head of the response.
    /// - Throws: `URLError`.
    public func upload(
        for request: URLRequest,
        fromFile file: URL,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (Data, URLResponse) {
        try await response {
            makeForegroundUpload(
                request,
                body: .file(file),
                deliveringTo: .data($0),
                delegate: delegate
            )
        }
    }

    /// Uploads bytes and returns the response, with any status.
    ///
    /// - Parameters:
    ///   - request: The request, whose body is ignored; its default method is `POST`.
    ///   - bodyData: The bytes.
    ///   - delegate: The delegate of this transfer, instead of the session's.
    /// - Returns: The body and the head of the response.
    /// - Throws: `URLError`.
    public func upload(
        for request: URLRequest,
        from bodyData: Data,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (Data, URLResponse) {
        try await response {
            makeForegroundUpload(
                request,
                body: .data(bodyData),
                deliveringTo: .data($0),
                delegate: delegate
            )
        }
    }

    /// Downloads a URL into a temporary file, which the caller must move or remove.
    ///
    /// - Parameters:
    ///   - url: The URL.
    ///   - delegate: The delegate of this transfer, instead of the session's.
    /// - Returns: The file and the head of the response.
    /// - Throws: `URLError`, with `URLError.downloadTaskResumeData` if the download can be resumed.
    public func download(
        from url: URL,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (URL, URLResponse) {
        try await download(for: URLRequest(url: url), delegate: delegate)
    }

    /// Downloads the response to a request into a temporary file, which the caller must move or remove.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - delegate: The delegate of this transfer, instead of the session's.
    /// - Returns: The file and the head of the response.
    /// - Throws: `URLError`, with `URLError.downloadTaskResumeData` if the download can be resumed.
    public func download(
        for request: URLRequest,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (URL, URLResponse) {
        try await response {
            makeForegroundDownload(
                request,
                deliveringTo: .file(Self.keepingFile($0)),
                delegate: delegate
            )
        }
    }

    /// Resumes an earlier download in a process, into a temporary file, which the caller must move or remove.
    ///
    /// - Parameters:
    ///   - data: The resume data of the earlier download.
    ///   - delegate: The delegate of this transfer, instead of the session's.
    /// - Returns: The file and the head of the response.
    /// - Throws: `URLError`, with `URLError.downloadTaskResumeData` if the download can be resumed.
    public func download(
        resumeFrom data: Data,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (URL, URLResponse) {
        try await response {
            makeForegroundDownload(
                resuming: data,
                deliveringTo: .file(Self.keepingFile($0)),
                delegate: delegate
            )
        }
    }

    /// Returns the head of the response to a request for a URL once it arrives, and the bytes as they arrive.
    ///
    /// - Parameters:
    ///   - url: The URL.
    ///   - delegate: The delegate of this transfer, instead of the session's.
    /// - Returns: The bytes and the head of the response.
    /// - Throws: `URLError`; reading the bytes throws later errors of the transfer.
    public func bytes(
        from url: URL,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (AsyncBytes, URLResponse) {
        try await bytes(for: URLRequest(url: url), delegate: delegate)
    }

    /// Returns the head of the response to a request once it arrives, and the bytes as they arrive.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - delegate: The delegate of this transfer, instead of the session's.
    /// - Returns: The bytes and the head of the response.
    /// - Throws: `URLError`; reading the bytes throws later errors of the transfer.
    public func bytes(
        for request: URLRequest,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (AsyncBytes, URLResponse) {
        let answer = ResponseBytes()
        let task = makeForegroundData(request, deliveringTo: .bytes(answer), delegate: delegate)
        answer.whenAbandoned { [weak task] in task?.cancel() }
        let pieces = answer.takePieces()
        return try await withTaskCancellationHandler {
            task.resume()
            let response = try await answer.response()
            return (
                AsyncBytes(task: task, pieces: pieces, receiveWindow: answer.receiveWindow),
                response
            )
        } onCancel: {
            task.cancel()
        }
    }

    /// Runs a task and returns the arguments of its completion handler.
    private func response<Content: Sendable, Made: URLSessionTask>(
        of make: (@escaping @Sendable (Content?, URLResponse?, (any Error)?) -> Void) -> Made
    ) async throws -> (Content, URLResponse) {
        let call = PendingCall()
        return try await withTaskCancellationHandler {
            let answer: (Content, UnchangingResponse) = try await withCheckedThrowingContinuation {
                continuation in
                let task = make { content, response, error in
                    if let content, let response {
                        continuation.resume(
                            returning: (content, UnchangingResponse(value: response))
                        )
                    } else {
                        continuation.resume(throwing: error ?? URLError(.unknown))
                    }
                }
                call.begin(task)
                task.resume()
            }
            return (answer.0, answer.1.value)
        } onCancel: {
            call.cancel()
        }
    }

    /// Returns a handler that moves the file to a path at which it is not removed after the call.
    private static func keepingFile(
        _ handler: @escaping ForegroundTransfer.FileHandler
    ) -> ForegroundTransfer.FileHandler {
        { file, response, error in
            guard let file else { return handler(nil, response, error) }
            let kept = FileManager.default.temporaryDirectory
                .appendingPathComponent("download-\(UUID().uuidString)")
            do {
                try FileManager.default.moveItem(at: file, to: kept)
                handler(kept, response, nil)
            } catch {
                handler(nil, response, URLError(.cannotMoveFile, reason: "\(error)"))
            }
        }
    }
}

/// The task of a call that waits for its response, and the state of its cancellation.
private final class PendingCall: Sendable {
    private let state = Mutex((task: URLSessionTask?.none, isCancelled: false))

    func begin(_ task: URLSessionTask) {
        let isCancelled = state.withLock { state in
            state.task = task
            return state.isCancelled
        }
        if isCancelled { task.cancel() }
    }

    func cancel() {
        let task = state.withLock { state in
            state.isCancelled = true
            return state.task
        }
        task?.cancel()
    }
}
