import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageTransfer
import Synchronization
import SystemPackage

/// Download task of a session in this process, which resumes an earlier download.
///
/// The engine follows redirects without asking the delegate, and never combines bytes of two versions: see
/// ``TransferEngine/download(_:to:)``.
struct ForegroundDownload {
    private let session: URLSession
    private let task: URLSessionTask
    private let transfer: ForegroundTransfer
    private let engine: TransferEngine

    init(
        for task: URLSessionTask,
        in session: URLSession,
        transfer: ForegroundTransfer,
        engine: TransferEngine
    ) {
        self.session = session
        self.task = task
        self.transfer = transfer
        self.engine = engine
    }

    /// Downloads until the file is complete, or the download has failed.
    func run() async -> ForegroundEnd {
        guard let original = task.originalRequest else { return .failure(URLError(.badURL)) }
        var partial: PartialDownload
        let part: PartialFile
        let lock: PartialLock
        do {
            partial = try transfer.resumed ?? PartialDownload(original)
            (part, lock) = try partial.open()
        } catch {
            let code: URLError.Code =
                transfer.resumed == nil ? .cannotCreateFile : .cannotOpenFile
            return .failure(URLError(code, reason: "\(error)", failing: original.url))
        }
        defer { withExtendedLifetime(lock) {} }
        var authorization: String?
        var challenges = 0
        var asksForCredentials = true
        while true {
            await transfer.waitWhilePaused()
            let request = makeRequest(
                ForegroundRequest(request: original, authorization: authorization, hasBody: false),
                answersChallenges: asksForCredentials
            )
            let result = await attempt(request, to: part)
            switch result {
            case .success:
                partial.complete(part.fileName.string)
                return .file(partial)
            case .failure(.cancelled) where transfer.wasInterrupted() && !Task.isCancelled: continue
            case .failure(.refused(_, 401, _)) where asksForCredentials:
                let head = task.record.withLock {
                    ($0.process?.lastResponse).map { TransferResponse($0.head) }
                }
                do throws(URLError) {
                    authorization = try await session.authorization(
                        for: head ?? TransferResponse(url: "", status: 401, headers: []),
                        of: task,
                        failures: challenges
                    )
                } catch {
                    return end(with: error, partial: partial, part: part)
                }
                challenges += 1
                asksForCredentials = authorization != nil
            case .failure(let error):
                let failure = URLError(error, failing: original.url, isDownload: true)
                return end(with: failure, partial: partial, part: part)
            }
        }
    }

    /// Returns the result of a failed download, with its resume data if it can be resumed.
    private func end(
        with error: URLError,
        partial: PartialDownload,
        part: PartialFile
    ) -> ForegroundEnd {
        let isWanted =
            error.code != .cancelled || transfer.isOutOfTime
            || task.record.withLock { !$0.resumeDataReceivers.isEmpty }
        guard isWanted, part.length.rawValue > 0, part.isContinuable, let data = partial.data else {
            partial.remove()
            return .failure(error)
        }
        return .failure(error.adding(resumeData: data))
    }

    private func attempt(
        _ request: DownloadRequest,
        to part: PartialFile
    ) async -> Result<DownloadReceipt, TransferError> {
        let attempt = Task { () -> Result<DownloadReceipt, TransferError> in
            do throws(TransferError) {
                return .success(try await engine.download(request, to: part))
            } catch {
                return .failure(error)
            }
        }
        // A request that is not idempotent is not interrupted.
        if ["GET", "HEAD"].contains(request.method) { transfer.holdAttempt { attempt.cancel() } }
        defer { transfer.holdAttempt(nil) }
        let result = await withTaskCancellationHandler {
            await attempt.value
        } onCancel: {
            attempt.cancel()
        }
        // The application's next request has the cookies of this response.
        await session.waitForCookies()
        return result
    }

    private func makeRequest(
        _ request: ForegroundRequest,
        answersChallenges: Bool
    ) -> DownloadRequest {
        let rules = session.rules
        let url = request.request.url?.absoluteURL.absoluteString ?? ""
        var download = DownloadRequest(
            mirrors: [url],
            size: nil,
            verify: { (_: FilePath) async throws(TransferError) -> DigestMismatch? in nil },
            report: { [session, task] in session.take($0, of: task) }
        )
        download.method = request.method
        download.expectedKind = .anything
        download.fields = request.fields(rules)
        download.requestTimeout = .limit(request.request.timeout(under: rules))
        download.acceptsErrorResponses = !rules.failsOnErrorStatus
        download.acceptsTransientResponses = true
        // No delegate is asked for a proxy's credentials: a 407 is the response.
        download.challengeStatuses = answersChallenges ? [401] : []
        download.detectsPortals = false
        download.decodesContent = true
        download.receiveWindow = transfer.receiveWindow
        let current = Mutex(request)
        download.fieldsAfterRedirect = { [session, task] head, next in
            let redirected = current.withLock { current -> ForegroundRequest in
                // A new attempt starts with the first request.
                if head.redirects == 0 { current = request }
                current.redirect(to: next)
                return current
            }
            return await session.withCookies {
                session.keepCookies(of: TransferResponse(head), for: task)
                return redirected.fields(rules)
            }
        }
        download.requiresNewestTLS = rules.tlsMinimumSupportedProtocolVersion == .TLSv13
        return download
    }
}

extension URLSession {
    /// Handles an event of a download in this process; called on the engine's thread.
    fileprivate func take(_ event: TransferEvent, of task: URLSessionTask) {
        switch event {
        case .connecting:
            task.noteRequest()
        case .responded(let head):
            task.takeHead(head)
            keepCookiesSoon(of: TransferResponse(head), for: task)
            // The announced size is that of the encoded form.
            let total = head.isEncoded ? nil : head.contentTotal
            task.record.withLock { $0.bytesExpected = total?.rawValue }
        case .accepted(_, _, let offset):
            guard offset.rawValue > 0 else {
                return task.record.withLock { $0.beginContent() }
            }
            var event = SessionEvent(.resumed, time: .now)
            event.offset = offset
            event.bytesReceived = offset
            take(event, of: task)
        case .received(let count):
            var event = SessionEvent(.progress, time: .now)
            event.bytesReceived = count
            take(event, of: task)
        default: break
        }
    }
}
