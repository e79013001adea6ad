import Logging
import StageModel

/// A running download: its request, the decisions of its state machine, and its costs so far.
struct Download {
    let request: DownloadRequest
    let part: PartialFile
    let urls: [TransferURL]
    let start: ContinuousClock.Instant
    var machine: TransferStateMachine
    var bytesReceived: Int64 = 0
    var reused: Int64 = 0
    /// `true` if caches must not answer from their storage, after content that was wrong.
    var bypassesCaches = false
    /// Offset beyond which bytes count as progress: those before it were there once, and may have been lost since.
    var highestOffset: Int64
    /// Status of the last response whose body was received.
    var status: Int?

    init(
        _ request: DownloadRequest,
        to part: PartialFile,
        policy: RetryPolicy,
        history: MirrorHistory,
        now: ContinuousClock.Instant
    ) throws(TransferError) {
        try RequestRules.check(request)
        self.request = request
        self.part = part
        urls = try TransferURL.mirrors(
            request.mirrors,
            allowed: request.allowedDomains,
            report: request.report
        )
        start = now
        highestOffset = max(part.length, request.receivedBefore).rawValue
        machine = TransferStateMachine(
            mirrors: urls.map { ($0.authority, $0.display) },
            policy: policy,
            history: history,
            failuresBefore: request.failuresBefore
        )
        reused = usable?.length ?? 0
    }

    /// Record and length of the partial file, if its total size is the requested one and it can be resumed.
    private var usable: (record: PartialFileRecord, total: Int64, length: Int64)? {
        guard request.method == "GET", let point = part.resumePoint, let total = point.record.total,
            request.size.map({ $0.rawValue == total }) ?? true
        else { return nil }
        return (point.record, total, point.length)
    }

    /// `true` if an earlier download received everything.
    ///
    /// Always `false` if neither size nor digest is known: only the server can tell.
    var isComplete: Bool {
        guard let usable, request.size != nil || request.isContentAddressed else { return false }
        return usable.length == usable.total
    }

    /// `true` if the body of an error response was received, which cannot be verified.
    var endedInRefusal: Bool { status.map { $0 >= 400 } ?? false }

    /// Reports the file that an earlier download completed.
    func reportExisting() {
        request.report(
            .accepted(generation: part.generation, path: part.path, resumingAt: part.length)
        )
    }

    /// Returns whether the bytes of the partial file came from another resource than a URL's, and no digest identifies
    /// them.
    func isOtherResource(_ url: TransferURL) -> Bool {
        guard !request.hasKnownDigest,
            let resource = usable?.record.resource
        else { return false }
        return resource != url.resource
    }

    /// Returns the rules for an attempt: the offset to resume from, and the validator.
    func rules(for source: TransferURL, isRanged: Bool) -> ResponseRules {
        var rules = ResponseRules(
            size: request.size?.rawValue,
            expectedKind: request.expectedKind,
            toleratesMissing: request.toleratesMissing,
            isGet: request.method == "GET",
            acceptsErrorResponses: request.acceptsErrorResponses,
            acceptsTransientResponses: request.acceptsTransientResponses
                || !request.isRepeatedSafely,
            isBodyless: request.method == "HEAD"
        )
        rules.hasKnownDigest = request.hasKnownDigest
        rules.detectsPortals = request.detectsPortals
        rules.decodesContent = request.decodesContent
        rules.bypassesCaches = bypassesCaches
        // Without an expected size, a request from the end of the partial file asks the server whether the file is
        // complete. With one, that request would be superfluous.
        guard isRanged, let usable, usable.length > 0,
            usable.length < usable.total || request.size == nil
        else { return rules }
        let isSameSource = usable.record.url == source.display
        let validator = isSameSource ? usable.record.validator : nil
        guard validator != nil || request.isContentAddressed else { return rules }
        rules.offset = usable.length
        rules.partialTotal = usable.total
        rules.validator = validator
        return rules
    }

    /// Reports the outcome of an attempt that does not end the download.
    func report(_ outcome: TransferStateMachine.Outcome) {
        switch outcome {
        case .complete, .probeSucceeded, .local: break
        case .restart: request.report(.restarted(.contentChanged))
        case .distrustRanges(let detail): request.report(.restarted(.unreliableRanges(detail)))
        case .transient(let error, _), .permanent(let error):
            request.report(.mirrorFailed(url: urls[machine.mirror].display, error))
        }
    }

    /// Log metadata of an attempt.
    func metadata(
        of outcome: TransferStateMachine.Outcome,
        progress: TransferStateMachine.Progress
    ) -> Logger.Metadata {
        [
            "transfer.url": "\(urls[machine.mirror].display)",
            "transfer.outcome": "\(outcome)",
            "transfer.bytes": "\(progress.newBytes)",
        ]
    }

    /// Returns the receipt of the finished download.
    func receipt(now: ContinuousClock.Instant) -> DownloadReceipt {
        DownloadReceipt(
            bytesReceived: ByteCount(bytesReceived),
            bytesReused: ByteCount(reused),
            url: machine.attempts > 0 ? urls[machine.mirror].display : nil,
            status: status,
            attempts: machine.attempts,
            duration: now - start
        )
    }
}

extension TransferURL {
    /// Parses the mirror URLs of a request; reports and skips the unusable ones.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if none is usable.
    static func mirrors(
        _ texts: [String],
        allowed: AllowedDomains?,
        report: (TransferEvent) -> Void
    ) throws(TransferError) -> [TransferURL] {
        var urls: [TransferURL] = []
        var first: TransferError?
        for text in texts {
            do throws(TransferError) {
                let url = try TransferURL(text)
                try RedirectRules.check(url, against: allowed)
                urls.append(url)
            } catch {
                first = first ?? error
                report(.mirrorFailed(url: text.withoutUser, error))
            }
        }
        if urls.isEmpty { throw first ?? .unacceptable(url: "", .noMirror) }
        return urls
    }
}

extension ResponseRules {
    /// Header fields of the request that these rules apply to.
    var fields: [String] {
        var fields = ["Accept-Encoding: identity"]
        if bypassesCaches { fields.append("Cache-Control: no-cache") }
        if offset > 0 {
            fields.append("Range: bytes=\(offset)-")
            if let validator { fields.append("If-Range: \(validator.text)") }
        }
        return fields
    }
}
