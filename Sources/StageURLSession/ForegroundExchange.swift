import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// The requests of a data or upload task of a session in this process, up to the final response.
///
/// A request is sent again only for a redirect, a challenge or an outdated cached response.
struct ForegroundExchange {
    private let session: URLSession
    private let task: URLSessionTask
    private let transfer: ForegroundTransfer
    private let engine: TransferEngine
    private let rules: URLSessionConfiguration
    private var body: RequestBody?
    var current: ForegroundRequest
    private var redirects = 0
    private var challenges = 0
    /// `true` if a challenge may still be answered.
    private var answersChallenges = true
    /// The cached response, while the server is asked to validate it.
    private var cached: CachedURLResponse?
    private var sink: ResponseSink

    /// Next step after a response.
    private enum Step {
        case deliver
        case sendAgain
        case useCached
        case end(ForegroundEnd)
    }

    /// Maximum number of bytes of an unwanted response that are read so that its connection can be reused.
    private static let skipLimit = 64 << 10

    /// Runs a task.
    static func run(
        _ task: URLSessionTask,
        in session: URLSession,
        transfer: ForegroundTransfer,
        engine: TransferEngine
    ) async -> ForegroundEnd {
        guard let original = task.originalRequest else { return .failure(URLError(.badURL)) }
        if original.url?.isFileURL == true {
            return await readFile(of: original, for: task, in: session, transfer: transfer)
        }
        do throws(URLError) {
            let body = try await openBody(
                of: original,
                for: task,
                in: session,
                transfer: transfer
            )
            var exchange = ForegroundExchange(
                for: task,
                in: session,
                transfer: transfer,
                engine: engine,
                request: original,
                body: body
            )
            return try await exchange.run()
        } catch {
            return .failure(error)
        }
    }

    private init(
        for task: URLSessionTask,
        in session: URLSession,
        transfer: ForegroundTransfer,
        engine: TransferEngine,
        request: URLRequest,
        body: RequestBody?
    ) {
        self.session = session
        self.task = task
        self.transfer = transfer
        self.engine = engine
        self.body = body
        rules = session.rules
        var request = request
        if body != nil, !(task is URLSessionUploadTask), request.httpMethod == "POST",
            request.value(forHTTPHeaderField: "Content-Type") == nil
        {
            // Apple's systems set this field, too.
            request.setValue(
                "application/x-www-form-urlencoded",
                forHTTPHeaderField: "Content-Type"
            )
        }
        current = ForegroundRequest(request: request, hasBody: body != nil)
        sink = ResponseSink(for: task, in: session, transfer: transfer)
    }

    private mutating func run() async throws(URLError) -> ForegroundEnd {
        if let end = try await answerFromCache() { return end }
        while true {
            let step = try await exchange()
            // The bytes received until then may be incomplete.
            if Task.isCancelled { throw URLError(.cancelled) }
            switch step {
            case .deliver: return try await sink.finish()
            case .sendAgain: continue
            case .useCached: return try await deliverCached(isConfirmed: true)
            case .end(let end): return end
            }
        }
    }

    // MARK: - Requests

    /// Sends the request and receives its response.
    private mutating func exchange() async throws(URLError) -> Step {
        await transfer.waitWhilePaused()
        let url = current.request.url
        let (events, continuation) = AsyncStream.makeStream(of: (StreamedEvent, Date).self)
        // Events wait here while the task is suspended.
        let streamed = makeRequest { continuation.yield(($0, .now)) }
        var step = Step.deliver
        var skipped = 0
        do {
            return try await withThrowingTaskGroup(of: Void.self) { [engine] group in
                group.addTask {
                    defer { continuation.finish() }
                    try await engine.send(streamed)
                }
                for await (event, time) in events {
                    await transfer.waitWhilePaused()
                    switch event {
                    case .began: task.noteRequest(at: time)
                    case .sent(let count): reportSent(count)
                    case .head(let head):
                        task.takeHead(head, at: time, redirects: redirects)
                        step = try await judge(head, of: streamed)
                    case .bytes(let bytes):
                        if case .deliver = step {
                            try await sink.take(bytes)
                            continue
                        }
                        sink.receiveWindow.remove(bytes.count)
                        skipped += bytes.count
                    }
                    if case .end = step { break }
                    if skipped > Self.skipLimit { break }
                }
                if case .deliver = step {
                    try await group.waitForAll()
                } else {
                    if case .end = step { group.cancelAll() }
                    if skipped > Self.skipLimit { group.cancelAll() }
                    // An error of the connection after the response was discarded is harmless.
                    try? await group.waitForAll()
                    for await (event, _) in events {
                        if case .bytes(let bytes) = event { sink.receiveWindow.remove(bytes.count) }
                    }
                }
                return step
            }
        } catch let error as URLError {
            throw error
        } catch let error as TransferError {
            throw Task.isCancelled ? URLError(.cancelled) : URLError(error, failing: url)
        } catch {
            throw URLError(.unknown, reason: "\(error)", failing: url)
        }
    }

    private func makeRequest(
        _ receive: @escaping @Sendable (StreamedEvent) -> Void
    ) -> StreamedRequest {
        let url = current.request.url?.absoluteURL.absoluteString ?? ""
        var request = StreamedRequest(url: url, receive: receive)
        request.method = current.method
        request.fields = current.fields(rules)
        request.body = current.hasBody ? body?.open : nil
        request.timeout = .limit(current.request.timeout(under: rules))
        request.requiresNewestTLS = rules.tlsMinimumSupportedProtocolVersion == .TLSv13
        request.receiveWindow = sink.receiveWindow
        task.record.withLock { record in
            record.beginBody()
            if current.hasBody { record.bytesExpected = body?.size }
        }
        return request
    }

    private func reportSent(_ count: ByteCount) {
        var event = SessionEvent(.progress, time: .now)
        event.bytesSent = count
        session.take(event, of: task)
    }

    /// Decides the next step after the head of a response.
    private mutating func judge(
        _ head: ResponseSummary,
        of request: StreamedRequest
    ) async throws(URLError) -> Step {
        let answer = TransferResponse(head)
        await session.storeCookies(of: answer, for: task)
        if head.status == 304, cached != nil { return .useCached }
        if !ForegroundRequest.bodyless.contains(current.method), current.method != "OPTIONS",
            head.status < 400, let cache = rules.urlCache, let url = current.request.url
        {
            ResponseCache.forget(URLRequest(url: url), in: cache)
        }
        if let next = try await followRedirect(head, of: request) {
            current.request = next
            redirects += 1
            task.record.withLock { $0.process?.current = next }
            return .sendAgain
        }
        if head.status == 401, answersChallenges {
            let authorization = try await session.authorization(
                for: answer,
                of: task,
                failures: challenges
            )
            challenges += 1
            if let authorization {
                current.authorization = authorization
                return .sendAgain
            }
            answersChallenges = false
        }
        cached = nil
        if rules.failsOnErrorStatus, head.status >= 400 {
            return .end(.failure(URLError(refusedWith: head.status, by: head.url)))
        }
        guard let response = HTTPURLResponse(answer) else { throw URLError(.badServerResponse) }
        let keeps =
            rules.urlCache != nil && ResponseCache.mayKeep(response, to: current.effective(rules))
        return try await sink.begin(
            response,
            decodes: head.isEncoded,
            cachesAs: keeps ? current.request : nil
        )
            ? .deliver : .end(.failure(URLError(.cancelled)))
    }

    /// Returns the request that follows a redirect; `nil` if there is no redirect or the delegate refuses it.
    private mutating func followRedirect(
        _ head: ResponseSummary,
        of request: StreamedRequest
    ) async throws(URLError) -> URLRequest? {
        let redirection: Redirection?
        do throws(TransferError) {
            redirection = try request.redirection(by: head, step: redirects + 1)
        } catch {
            throw URLError(error, failing: current.request.url)
        }
        guard let redirection, let proposed = current.request.following(redirection) else {
            return nil
        }
        var next: URLRequest? = proposed
        if let delegate = task.listener as? any URLSessionTaskDelegate,
            let response = HTTPURLResponse(TransferResponse(head))
        {
            next = await session.ask(orElse: nil) { [session, task] reply in
                delegate.urlSession(
                    session,
                    task: task,
                    willPerformHTTPRedirection: response,
                    newRequest: proposed,
                    completionHandler: reply
                )
            }
        }
        guard let next else { return nil }
        if current.leavesOrigin(for: next) { challenges = 0 }
        if ForegroundRequest.bodyless.contains(next.httpMethod ?? "GET") {
            current.hasBody = false
        } else if let data = next.httpBody, next.httpBody != current.request.httpBody {
            body = try openBody(data)
            current.hasBody = true
        } else {
            current.hasBody = current.hasBody && redirection.keepsBody
        }
        current.conditions = []
        cached = nil
        return next
    }

    // MARK: - Cache

    /// Responds from the cache if possible; otherwise prepares a request, which may be conditional.
    private mutating func answerFromCache() async throws(URLError) -> ForegroundEnd? {
        let request = current.request
        let own = request.cachePolicy
        let policy = own == .useProtocolCachePolicy ? rules.requestCachePolicy : own
        let known = current.hasBody ? nil : ResponseCache.answer(rules.urlCache, to: request)
        let effective = current.effective(rules)
        switch ResponseCache.decide(effective, policy: policy, cached: known, now: .now) {
        case .load:
            if policy == .reloadIgnoringLocalAndRemoteCacheData {
                current.conditions = ["Cache-Control: no-cache"]
            }
        case .fail:
            let reason = "the cache has no response, and the policy forbids a request"
            throw URLError(.resourceUnavailable, reason: reason, failing: request.url)
        case .revalidate(let response, let fields):
            cached = response
            current.conditions = fields
        case .use(let response):
            cached = response
            return try await deliverCached(isConfirmed: false)
        }
        return nil
    }

    /// Delivers the cached response; `isConfirmed` adds the fields of the response that has validated it.
    private mutating func deliverCached(
        isConfirmed: Bool
    ) async throws(URLError) -> ForegroundEnd {
        guard let cached, var response = cached.response as? HTTPURLResponse else {
            throw URLError(.resourceUnavailable)
        }
        if isConfirmed, let confirmation = task.response as? HTTPURLResponse {
            response = ResponseCache.refreshed(response, by: confirmation)
            if let cache = rules.urlCache { keep(response, data: cached.data, in: cache) }
        }
        task.record.withLock { [response] in $0.response = response }
        guard try await sink.begin(response, decodes: true, cachesAs: nil) else {
            return .failure(URLError(.cancelled))
        }
        let bytes = [UInt8](cached.data)
        sink.receiveWindow.add(bytes.count)
        if !bytes.isEmpty { try await sink.take(bytes) }
        return try await sink.finish()
    }

    /// Stores a response that the server has validated, or removes it if the server now forbids that.
    private func keep(_ response: HTTPURLResponse, data: Data, in cache: URLCache) {
        guard ResponseCache.mayKeep(response, to: current.effective(rules)) else {
            return ResponseCache.forget(current.request, in: cache)
        }
        let kept = CachedURLResponse(response: response, data: data)
        let sent = task.record.withLock { $0.process?.asked } ?? .now
        ResponseCache.keep(kept, to: current.request, sent: sent, in: cache)
    }
}

extension ResponseSummary {
    /// `true` if the body has a content coding, so that `Content-Length` is not the size of the content.
    var isEncoded: Bool {
        value(of: "Content-Encoding").map { $0.lowercased() != "identity" } ?? false
    }
}
