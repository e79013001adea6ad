import CCurl
import Logging
import StageModel
import StageSystem

extension TransferEngine {
    /// Downloads content into a partial file, and resumes it where an earlier download, in any process, ended.
    ///
    /// Returns once the file is complete and the request's `verify` has accepted it. Bytes of two versions are never
    /// combined: a download is resumed only under the same strong validator, or for content that is identified by its
    /// digest. Cancelling the task ends the download at once, and keeps the received bytes.
    ///
    /// - Throws: ``TransferError``; the partial file then has what the next download resumes from.
    public func download(
        _ request: DownloadRequest,
        to part: PartialFile
    ) async throws(TransferError) -> DownloadReceipt {
        refreshHistory()
        var download = try Download(
            request,
            to: part,
            policy: configuration.retry,
            history: histories[request.user],
            now: clock.now
        )
        var action = step(.began(isComplete: download.isComplete), of: &download)
        if action == .verify { download.reportExisting() }
        while true {
            switch action {
            case .attempt(let mirror, let isRanged):
                action = await attempt(mirror: mirror, isRanged: isRanged, of: &download)
            case .probe(let mirror):
                action = await attempt(
                    mirror: mirror,
                    isRanged: false,
                    isProbe: true,
                    of: &download
                )
            case .wait(let duration, let reason):
                request.report(.waiting(reason, duration))
                action = await sleep(duration) ? step(.waited, of: &download) : .fail(.cancelled)
            case .verify:
                action = try await verify(&download)
            case .succeed:
                return download.receipt(now: clock.now)
            case .fail(let error):
                throw error
            }
        }
    }

    private func step(
        _ event: TransferStateMachine.Event,
        of download: inout Download
    ) -> TransferStateMachine.Action {
        refreshHistory()
        let moment = TransferStateMachine.Moment(
            now: clock.now - download.start,
            random: .random(in: 0..<1, using: &jitter)
        )
        let user = download.request.user
        return download.machine.handle(event, history: &histories[user], at: moment)
    }

    /// Waits, and returns `false` if the task was cancelled meanwhile.
    func sleep(_ duration: Duration) async -> Bool {
        do {
            try await Task.sleep(for: duration.sleepable, clock: clock)
            return true
        } catch {
            return false
        }
    }

    private func verify(
        _ download: inout Download
    ) async throws(TransferError) -> TransferStateMachine.Action {
        if download.endedInRefusal { return step(.verified(nil), of: &download) }
        let mismatch: DigestMismatch?
        do throws(TransferError) {
            mismatch = try await download.request.verify(download.part.path)
        } catch {
            return .fail(error)
        }
        guard let mismatch else { return step(.verified(nil), of: &download) }
        guard download.request.isRepeatedSafely else {
            let url = download.urls[download.machine.mirror].display
            return .fail(.wrongDigest(url: url, mismatch))
        }
        // A cancelled task's verification does not count.
        guard !Task.isCancelled else { return .fail(.cancelled) }
        try download.part.remove()
        // An intermediate cache may have sent the wrong content, and would send it again.
        download.bypassesCaches = true
        let wasContinued = download.reused > 0
        download.reused = 0
        download.request.report(.restarted(.wrongDigest))
        return step(wasContinued ? .resumedContentIsWrong : .verified(mismatch), of: &download)
    }

    /// Sends a request to one mirror, follows redirects, and returns the next action.
    private func attempt(
        mirror: Int,
        isRanged: Bool,
        isProbe: Bool = false,
        of download: inout Download
    ) async -> TransferStateMachine.Action {
        let part = download.part
        var progress = TransferStateMachine.Progress()
        let smallest = configuration.checkpoint.smallest
        let isRecorded = download.request.size.map { $0 > smallest } ?? true
        if isRecorded { beginCheckpoints(of: part, report: download.request.report) }
        var outcome: TransferStateMachine.Outcome
        do throws(TransferError) {
            let url = download.urls[mirror]
            var rules = download.rules(for: url, isRanged: isRanged)
            rules.isProbe = isProbe
            rules.maximumRetryAfter = configuration.retry.maximumRetryAfter
            outcome = try await follow(
                url,
                by: rules,
                of: &download,
                progress: &progress
            )
        } catch {
            outcome = .permanent(error)
        }
        if isRecorded {
            if outcome != .complete, progress.wasAccepted { await flush(part) }
            await endCheckpoints(of: part, isComplete: outcome == .complete)
        }
        if let fault = part.discardLostBytes() {
            switch outcome {
            case .local: break
            default: outcome = .local(TransferError(fault))
            }
        }
        let reached = progress.newBytes > 0 ? part.durable : 0
        if reached - download.highestOffset >= smallest.rawValue {
            download.highestOffset = reached
            progress.isDurable = true
        }
        download.report(outcome)
        logger.debug(
            "An attempt ended",
            metadata: download.metadata(of: outcome, progress: progress)
        )
        return step(.ended(outcome, progress), of: &download)
    }

    private func follow(
        _ source: TransferURL,
        by rules: ResponseRules,
        of download: inout Download,
        progress: inout TransferStateMachine.Progress
    ) async throws(TransferError) -> TransferStateMachine.Outcome {
        let request = download.request
        if source.isFile {
            guard request.method == "GET" else {
                let detail = "a file has no method '\(request.method)'"
                throw .unacceptable(url: source.display, .request(detail))
            }
            return await copy(source, into: &download, progress: &progress)
        }
        var rules = rules
        var redirects = request.redirects(from: source)
        var (wasSent, fields) = (false, [String]?.none)
        while true {
            let isTrusted = try request.trusts(redirects.url)
            rules.hasInsecureHostChange = redirects.hasInsecureHostChange && request.detectsPortals
            rules.isBodyless = redirects.method == "HEAD"
            rules.isOtherResource = download.isOtherResource(redirects.url)
            let isFirst = redirects.isAtOrigin && request.isOfFirstOrigin(source)
            rules.challengeStatuses = isFirst ? request.challengeStatuses : []
            let receiver = DownloadReceiver(
                request,
                redirects: redirects,
                source: source.display,
                rules: rules,
                part: download.part,
                recordsFrom: configuration.checkpoint.smallest.rawValue
            )
            var asked = request.exchange(
                after: redirects,
                rules: rules,
                isTrusted: isTrusted,
                isFirst: isFirst
            )
            asked.fields += fields ?? (redirects.isAtOrigin ? request.fields : [])
            let exchange = Exchange(asked, receiver: receiver, now: activityClock.now)
            exchange.receiveWindow = request.receiveWindow
            let end = await perform(exchange)
            download.bytesReceived += end.bytes
            if !isTrusted, end.code == CURLE_ABORTED_BY_CALLBACK {
                throw .unacceptable(url: redirects.url.display, .localAddress)
            }
            progress.newBytes = receiver.newBytes
            progress.wasAccepted = receiver.wasAccepted
            if receiver.wasAccepted { download.status = receiver.status }
            if receiver.hasBegun { download.reused = 0 }
            wasSent = wasSent || end.wasRequestSent || end.isComplete || receiver.decision != nil
            progress.isRangeUnanswered = rules.offset > 0 && wasSent && !receiver.wasAccepted
            if let outcome = receiver.outcome(end) {
                return wasSent && !request.isRepeatedSafely ? outcome.withoutRepetition : outcome
            }
            try redirects.follow(receiver.decision, status: receiver.status)
            fields = await request.fields(after: receiver.redirect, at: redirects) ?? fields
        }
    }
}

extension DownloadRequest {
    /// Returns whether a mirror has the origin of the first one.
    fileprivate func isOfFirstOrigin(_ mirror: TransferURL) -> Bool {
        guard let url = mirrors.first, let first = try? TransferURL(url) else { return false }
        return first.hasSameOrigin(as: mirror)
    }

    /// Returns the caller's header fields for the request that follows a redirect; `nil` if it does not override
    /// them.
    fileprivate func fields(
        after redirect: ResponseSummary?,
        at redirects: RedirectChain
    ) async -> [String]? {
        guard let redirect, let fieldsAfterRedirect else { return nil }
        return await fieldsAfterRedirect(redirect, redirects.url.display)
    }

    /// Returns the redirect chain that begins at a mirror.
    fileprivate func redirects(from source: TransferURL) -> RedirectChain {
        RedirectChain(
            start: source,
            rules: RedirectRules(allowed: allowedDomains, allowsPlain: allowsPlainRedirects),
            method: method
        )
    }

    /// Returns the request after the redirects so far, without the caller's fields.
    fileprivate func exchange(
        after redirects: RedirectChain,
        rules: ResponseRules,
        isTrusted: Bool,
        isFirst: Bool
    ) -> ExchangeRequest {
        ExchangeRequest(
            url: redirects.url,
            method: redirects.method,
            fields: rules.fields + RequestRules.fieldsWithoutBody(of: redirects.method)
                + (isFirst ? confidentialFields : []),
            priority: priority,
            user: user,
            size: (size?.rawValue ?? rules.partialTotal ?? .max) - rules.offset,
            timeout: requestTimeout,
            mayAuthenticate: redirects.isAtOrigin && isTrusted,
            allowsLocalAddresses: isTrusted,
            mayRepeat: isRepeatedSafely,
            requiresNewestTLS: requiresNewestTLS,
            decodesContent: decodesContent
        )
    }
}
