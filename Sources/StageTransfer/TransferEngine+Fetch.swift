import StageModel
import StageSystem
import SystemPackage

extension TransferEngine {
    /// Downloads a small document into memory.
    ///
    /// - Throws: ``TransferError``, with ``TransferError/unacceptable(url:_:)`` for a document that exceeds the
    ///   request's limit, and for a range that no mirror serves if one of them may serve the whole content.
    public func fetch(_ request: FetchRequest) async throws(TransferError) -> FetchedContent {
        let urls = try TransferURL.mirrors(
            request.mirrors,
            allowed: request.allowedDomains,
            report: request.report
        )
        refreshHistory()
        var policy = configuration.retry
        if request.isTriedOnce { policy.maximumAttempts = 1 }
        var machine = TransferStateMachine(
            mirrors: urls.map { ($0.authority, $0.display) },
            policy: policy,
            history: histories[nil]
        )
        let start = clock.now
        // The error of a mirror that may serve the whole content. It takes precedence over errors of mirrors that do not serve it.
        var withoutRanges: TransferError?
        var content = FetchedContent.notModified
        var remaining = request.part?.range
        var event = TransferStateMachine.Event.began(isComplete: false)
        while true {
            refreshHistory()
            let moment = TransferStateMachine.Moment(
                now: clock.now - start,
                random: .random(in: 0..<1, using: &jitter)
            )
            switch machine.handle(event, history: &histories[nil], at: moment) {
            case .attempt(let mirror, let isRanged):
                var outcome = await attempt(
                    urls[mirror],
                    for: request,
                    remaining: isRanged ? remaining : nil,
                    isRanged: isRanged,
                    content: &content
                )
                let progress = await advance(&remaining, of: request, after: &outcome)
                if progress.isDurable, outcome == .complete {
                    content = .document(FetchedDocument(bytes: [], url: urls[mirror].display))
                }
                switch outcome {
                case .permanent(.unacceptable(let url, .ranges)):
                    withoutRanges = .unacceptable(url: url, .ranges)
                case .transient(let error, _), .permanent(let error):
                    request.report(.mirrorFailed(url: urls[mirror].display, error))
                default: break
                }
                event = .ended(outcome, progress)
            case .probe:
                // Not reached: the machine probes only after `isRangeUnanswered`, which only downloads to files set.
                event = .ended(.probeSucceeded, TransferStateMachine.Progress())
            case .wait(let duration, let reason):
                request.report(.waiting(reason, duration))
                guard await sleep(duration) else { throw .cancelled }
                event = .waited
            case .verify: event = .verified(nil)
            case .succeed: return content
            case .fail(let error): throw error == .cancelled ? error : withoutRanges ?? error
            }
        }
    }

    /// Advances the histories to the current time, at which older faults expire.
    func refreshHistory() { histories.advance(to: clock.now - beginning) }

    private func attempt(
        _ source: TransferURL,
        for request: FetchRequest,
        remaining: Range<Int64>?,
        isRanged: Bool,
        content: inout FetchedContent
    ) async -> TransferStateMachine.Outcome {
        let withoutRanges = TransferError.unacceptable(url: source.display, .ranges)
        guard isRanged || request.isWhole else { return .permanent(withoutRanges) }
        let asked = request.narrowed(to: remaining)
        let outcome: TransferStateMachine.Outcome
        do throws(TransferError) {
            if source.isFile {
                content = try await read(source, for: asked)
                outcome = .complete
            } else {
                outcome = try await follow(source, for: asked, content: &content)
            }
        } catch {
            return error == .cancelled ? .local(error) : .permanent(error)
        }
        // No request without a range follows that could show whether the server has the content.
        if case .distrustRanges = outcome, !request.isWhole {
            // Reported once for each host, not for each range.
            if histories[nil].allowsRanges(from: source.authority) {
                request.report(.mirrorFailed(url: source.display, withoutRanges))
            }
            histories[nil].recordUnsafeRanges(of: source.authority)
            return .permanent(withoutRanges)
        }
        guard outcome == .complete, let reason = await request.refusal?(content) else {
            return outcome
        }
        return .permanent(.unacceptable(url: source.display, .answer(reason)))
    }

    /// Determines the range to request after an attempt, and returns the progress of the attempt.
    ///
    /// If nothing is left to request, the attempt is complete after all.
    private func advance(
        _ remaining: inout Range<Int64>?,
        of request: FetchRequest,
        after outcome: inout TransferStateMachine.Outcome
    ) async -> TransferStateMachine.Progress {
        var progress = TransferStateMachine.Progress()
        progress.wasAccepted = outcome == .complete
        guard case .transient = outcome, let before = remaining,
            let left = await request.remainingRange?(), left.lowerBound > before.lowerBound
        else { return progress }
        remaining = left
        progress.wasAccepted = true
        progress.isDurable = true
        progress.newBytes = left.lowerBound - before.lowerBound
        if left.isEmpty { outcome = .complete }
        return progress
    }

    private func follow(
        _ source: TransferURL,
        for request: FetchRequest,
        content: inout FetchedContent
    ) async throws(TransferError) -> TransferStateMachine.Outcome {
        var rules = ResponseRules(
            limit: request.limit.rawValue,
            expectedKind: request.expectedKind
        )
        var fields = rules.fields
        if request.isRevalidated { fields.append("Cache-Control: max-age=0") }
        if request.isWhole, let part = request.part { rules.size = part.total }
        if !request.isWhole, let range = request.part?.range {
            fields.append("Range: bytes=\(range.lowerBound)-\(range.upperBound - 1)")
        }
        var redirects = RedirectChain(
            start: source,
            rules: RedirectRules(
                allowed: request.allowedDomains,
                requiresTrustedTransport: request.requiresTrustedTransport,
                allowsPlain: request.allowsPlainRedirects
            )
        )
        while true {
            rules.hasInsecureHostChange = redirects.hasInsecureHostChange
            let tag = request.conditionTag(at: redirects)
            rules.isConditional = tag != nil
            let receiver = FetchReceiver(
                request,
                redirects: redirects,
                source: source.display,
                rules: rules
            )
            let exchange = Exchange(
                ExchangeRequest(
                    url: redirects.url,
                    fields: fields + (tag.map { ["If-None-Match: \($0)"] } ?? []),
                    priority: request.priority,
                    mayAuthenticate: redirects.isAtOrigin
                ),
                receiver: receiver,
                now: activityClock.now
            )
            exchange.receiveWindow = request.receiveWindow
            let end = await perform(exchange)
            if let outcome = receiver.outcome(end) {
                if outcome == .complete { content = receiver.fetched }
                return outcome
            }
            try redirects.follow(receiver.decision, status: receiver.status)
        }
    }

    /// Reads a document, or a range of it, from a local file.
    private func read(
        _ url: TransferURL,
        for request: FetchRequest
    ) async throws(TransferError) -> FetchedContent {
        // All transfers would wait with this thread for a slow file system.
        let bytes = try await withBlockingThread { () throws(TransferError) in
            try TransferEngine.bytes(of: url, for: request)
        }
        guard let take = request.take else {
            return .document(FetchedDocument(bytes: bytes, url: url.display))
        }
        take(.began(offset: request.part?.range.lowerBound ?? 0))
        request.receiveWindow?.add(bytes.count)
        take(.bytes(bytes))
        return .document(FetchedDocument(bytes: [], url: url.display))
    }

    /// Returns the content of a local file, or a range of it.
    private static func bytes(
        of url: TransferURL,
        for request: FetchRequest
    ) throws(TransferError) -> [UInt8] {
        let limit = request.limit
        let bytes: [UInt8]
        let size: Int64
        do throws(FileError) {
            let file = try File.open(readingRegular: FilePath(url.path))
            size = try file.status().size
            if let range = request.part?.range {
                bytes = try file.read(count: range.count, at: range.lowerBound)
            } else {
                bytes = try file.readAll(limit: Int(limit.rawValue))
            }
        } catch  where error.errno == .fileTooLarge {
            throw .unacceptable(url: url.display, .size(limit: limit))
        } catch {
            throw TransferError(reading: url, error)
        }
        if let part = request.part, bytes.count < part.range.count {
            throw .wrongSize(
                url: url.display,
                expected: ByteCount(part.total),
                actual: ByteCount(size)
            )
        }
        return bytes
    }
}

extension FetchRequest {
    /// Returns the entity tag for the current URL of a redirect chain; `nil` if the request to it is not conditional.
    ///
    /// After redirects, queries are not compared, since they may be signatures.
    fileprivate func conditionTag(at redirects: RedirectChain) -> String? {
        guard let entityTag, Validator.isStrong(entityTag) else { return nil }
        guard let entityTagURL else { return entityTag }
        // A URL that cannot be read is that of no request.
        guard let known = try? TransferURL(entityTagURL) else { return nil }
        let url = redirects.url
        let isSame =
            redirects.steps == 0
            ? known.display == url.display : known.resource == url.resource
        return isSame ? entityTag : nil
    }

    /// Returns the request for the rest of its range; `nil` for all of it.
    fileprivate func narrowed(to rest: Range<Int64>?) -> FetchRequest {
        guard let part, let rest, rest != part.range else { return self }
        var request = self
        request.part = (rest, part.total)
        request.limit = ByteCount(Int64(rest.count))
        return request
    }
}
