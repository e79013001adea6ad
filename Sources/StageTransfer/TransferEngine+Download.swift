import Logging
import StageModel
import StageSystem

extension TransferEngine {
    /// Brings content into a part file, which it goes on filling where an earlier download, in
    /// whatever process, ended.
    ///
    /// Returns once the file is complete and `verify` of the request has accepted it. The bytes of two
    /// versions are never combined: they are continued only under the same strong validator, or for
    /// content that is known by its digest. Cancelling the task ends the download at once, with what
    /// was received kept.
    ///
    /// - Throws: ``TransferError``; the part file then holds what the next download goes on from.
    public func download(
        _ request: DownloadRequest,
        to part: PartFile
    ) async throws(TransferError) -> DownloadReceipt {
        var download = try Download(request, part, configuration.retry, memory, clock.now)
        var action = step(.began(isComplete: download.isComplete), &download)
        if action == .verify { download.reportExisting() }
        while true {
            switch action {
            case .attempt(let mirror, let isRanged):
                action = await attempt(mirror, isRanged, &download)
            case .wait(let duration, let reason):
                request.report(.waiting(reason, duration))
                action = await sleep(duration) ? step(.waited, &download) : .fail(.cancelled)
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
        _ event: DownloadMachine.Event,
        _ download: inout Download
    ) -> DownloadMachine.Action {
        let moment = DownloadMachine.Moment(
            now: clock.now - download.start,
            random: .random(in: 0..<1, using: &jitter)
        )
        return download.machine.handle(event, &memory, at: moment)
    }

    /// Waits, and returns whether the task was not cancelled meanwhile.
    func sleep(_ duration: Duration) async -> Bool {
        do {
            try await Task.sleep(for: duration, clock: clock)
            return true
        } catch {
            return false
        }
    }

    private func verify(
        _ download: inout Download
    ) async throws(TransferError) -> DownloadMachine.Action {
        let isGood: Bool
        do throws(TransferError) {
            isGood = try await download.request.verify(download.part.path)
        } catch {
            return .fail(error)
        }
        if isGood { return step(.verified(true), &download) }
        // What a cancelled task found out does not count.
        guard !Task.isCancelled else { return .fail(.cancelled) }
        try download.part.remove()
        download.reused = 0
        download.request.report(.restarted(.wrongDigest))
        return step(.verified(false), &download)
    }

    /// Asks one mirror, follows where it leads, and says what to do after that.
    private func attempt(
        _ mirror: Int,
        _ isRanged: Bool,
        _ download: inout Download
    ) async -> DownloadMachine.Action {
        let part = download.part
        let durable = part.durable
        var progress = DownloadMachine.Progress()
        let isRecorded = download.request.size > configuration.checkpoint.smallest
        if isRecorded { beginCheckpoints(of: part) }
        var outcome: DownloadMachine.Outcome
        do throws(TransferError) {
            let url = download.urls[mirror]
            outcome = try await follow(url, isRanged, &download, &progress)
        } catch {
            outcome = .permanent(error)
        }
        if isRecorded {
            endCheckpoints(of: part)
            if outcome != .complete, progress.wasAccepted { await flush(part) }
        }
        let reached = progress.newBytes > 0 ? part.durable : durable
        progress.isDurable = reached - durable >= configuration.checkpoint.smallest.rawValue
        download.tell(outcome)
        logger.debug("An attempt ended", metadata: download.metadata(outcome, progress))
        return step(.ended(outcome, progress), &download)
    }

    private func follow(
        _ source: TransferURL,
        _ isRanged: Bool,
        _ download: inout Download,
        _ progress: inout DownloadMachine.Progress
    ) async throws(TransferError) -> DownloadMachine.Outcome {
        if source.isFile { return await copy(source, &download, &progress) }
        let request = download.request
        var rules = download.rules(for: source, isRanged: isRanged)
        var route = Route(start: source, allowed: request.allowedDomains)
        while true {
            rules.wasLedAway = route.wasLedAway
            let receiver = DownloadReceiver(
                request,
                url: route.url,
                source: source.display,
                rules: rules,
                part: download.part,
                recordsFrom: configuration.checkpoint.smallest.rawValue
            )
            let exchange = Exchange(
                ExchangeRequest(
                    url: route.url,
                    fields: rules.fields + (route.isAtOrigin ? request.fields : []),
                    priority: request.priority,
                    size: request.size.rawValue - rules.offset,
                    mayAuthenticate: route.isAtOrigin
                ),
                receiver: receiver,
                now: clock.now
            )
            let end = await perform(exchange)
            download.bytesReceived += end.bytes
            progress.newBytes = receiver.newBytes
            progress.wasAccepted = receiver.wasAccepted
            if receiver.decision == .begin { download.reused = 0 }
            if let outcome = receiver.outcome(end) { return outcome }
            try route.follow(receiver.decision)
        }
    }
}

/// Where an attempt has got to by redirects.
struct Route {
    private(set) var url: TransferURL
    /// Whether no redirect has left the origin of the first URL yet.
    private(set) var isAtOrigin = true
    /// Whether an unencrypted answer led to another host.
    private(set) var wasLedAway = false
    private let allowed: AllowedDomains?
    private var steps = 0

    init(start: TransferURL, allowed: AllowedDomains?) {
        url = start
        self.allowed = allowed
    }

    /// Goes where a decision says.
    mutating func follow(_ decision: ResponseRules.Decision?) throws(TransferError) {
        guard case .redirect(let location) = decision else { return }
        steps += 1
        let target = try RedirectRules.target(
            of: location,
            from: url,
            step: steps,
            allowed: allowed
        )
        if url.scheme == "http", target.host != url.host { wasLedAway = true }
        if !target.hasSameOrigin(as: url) { isAtOrigin = false }
        url = target
    }
}
