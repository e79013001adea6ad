import Foundation
import FoundationNetworking
import StageSystem
import StageTransfer
import SystemPackage

extension ForegroundExchange {
    /// Opens the body of the task, if it has one.
    static func openBody(
        of request: URLRequest,
        for task: URLSessionTask,
        in session: URLSession,
        transfer: ForegroundTransfer
    ) async throws(URLError) -> RequestBody? {
        do {
            switch transfer.body {
            case .none: return nil
            case .data(let data): return try RequestBody(data: data)
            case .file(let url): return try RequestBody(file: url)
            case .stream:
                // A later attempt, as after a wait for connectivity, sends the same bytes.
                if let opened = transfer.openedBody { return opened }
                var stream = request.httpBodyStream.map { UnsharedStream(value: $0) }
                if stream == nil, let delegate = task.listener as? any URLSessionTaskDelegate {
                    stream = await session.ask(orElse: nil) { reply in
                        delegate.urlSession(session, task: task) {
                            reply($0.map { UnsharedStream(value: $0) })
                        }
                    }
                }
                guard let stream else {
                    let reason = "the delegate has no stream for the body"
                    throw URLError(
                        .requestBodyStreamExhausted,
                        reason: reason,
                        failing: request.url
                    )
                }
                let opened = try await withAbandonedThread {
                    try RequestBody(stream: stream.value)
                }
                transfer.openedBody = opened
                return opened
            }
        } catch let error as URLError {
            throw error
        } catch let error as FileError where error.errno == .noSuchFileOrDirectory {
            throw URLError(.fileDoesNotExist, reason: "\(error)", failing: request.url)
        } catch {
            throw URLError(.cannotOpenFile, reason: "\(error)", failing: request.url)
        }
    }

    /// Copies the bytes of another body, which the delegate provides for a redirect.
    func openBody(_ data: Data) throws(URLError) -> RequestBody {
        do throws(FileError) {
            return try RequestBody(data: data)
        } catch {
            throw URLError(.cannotOpenFile, reason: "\(error)", failing: current.request.url)
        }
    }

    /// Responds to a request for a local file.
    static func readFile(
        of request: URLRequest,
        for task: URLSessionTask,
        in session: URLSession,
        transfer: ForegroundTransfer
    ) async -> ForegroundEnd {
        guard let url = request.url else { return .failure(URLError(.badURL)) }
        do {
            let data = try await withAbandonedThread {
                let file = try File.open(readingRegular: FilePath(url.path))
                return Data(try file.readAll(limit: Int(file.status().size)))
            }
            var sink = ResponseSink(for: task, in: session, transfer: transfer)
            let response = URLResponse(
                url: url,
                mimeType: nil,
                expectedContentLength: data.count,
                textEncodingName: nil
            )
            guard try await sink.begin(response, decodes: false, cachesAs: nil) else {
                return .failure(URLError(.cancelled))
            }
            sink.receiveWindow.add(data.count)
            if !data.isEmpty { try await sink.take([UInt8](data)) }
            return try await sink.finish()
        } catch let error as URLError {
            return .failure(error)
        } catch {
            let isMissing = !FileManager.default.fileExists(atPath: url.path)
            let code: URLError.Code = isMissing ? .fileDoesNotExist : .cannotOpenFile
            return .failure(URLError(code, reason: "\(error)", failing: url))
        }
    }
}

/// A stream that is passed to the thread that reads it.
///
/// Unchecked, since the application no longer uses it.
private struct UnsharedStream: @unchecked Sendable {
    var value: InputStream
}

/// Runs work that may block for any time on its own thread; a cancelled caller does not wait for it.
func withAbandonedThread<Value: Sendable>(
    _ body: @escaping @Sendable () throws -> Value
) async throws -> Value {
    let reply = PendingReply<Result<Value, any Error>>()
    let result = await withTaskCancellationHandler {
        await withCheckedContinuation { continuation in
            reply.wait(continuation)
            startBlockingThread { reply.give(Result { try body() }) }
        }
    } onCancel: {
        reply.give(.failure(URLError(.cancelled)))
    }
    return try result.get()
}
