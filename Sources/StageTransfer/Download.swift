import Logging
import StageModel

/// A download in progress: what it was asked, what it decided and what it cost so far.
struct Download {
    let request: DownloadRequest
    let part: PartFile
    let urls: [TransferURL]
    let start: ContinuousClock.Instant
    var machine: DownloadMachine
    var bytesReceived: Int64 = 0
    var reused: Int64 = 0
    /// The status of the answer whose body was taken last.
    var status: Int?

    init(
        _ request: DownloadRequest,
        _ part: PartFile,
        _ policy: RetryPolicy,
        _ memory: MirrorMemory,
        _ now: ContinuousClock.Instant
    ) throws(TransferError) {
        try RequestRules.check(request)
        self.request = request
        self.part = part
        urls = try TransferURL.mirrors(request.mirrors, request.allowedDomains, request.report)
        start = now
        machine = DownloadMachine(
            mirrors: urls.map { ($0.authority, $0.display) },
            policy: policy,
            memory: memory,
            failuresBefore: request.failuresBefore
        )
        reused = usable?.length ?? 0
    }

    /// What is held of content of the size that was asked for, if that can be continued at all.
    private var usable: (record: PartRecord, total: Int64, length: Int64)? {
        guard request.method == "GET", let held = part.held, let total = held.record.total,
            request.size.map({ $0.rawValue == total }) ?? true
        else { return nil }
        return (held.record, total, held.length)
    }

    /// Whether an earlier download left nothing to receive.
    ///
    /// Where neither size nor digest is known, that is for the server to say.
    var isComplete: Bool {
        guard let usable, request.size != nil || request.isContentAddressed else { return false }
        return usable.length == usable.total
    }

    /// Whether the answer was a refusal whose body was wanted: there is nothing to verify it by.
    var endedInRefusal: Bool { status.map { $0 >= 400 } ?? false }

    /// Tells of the file that an earlier download completed.
    func reportExisting() {
        request.report(
            .accepted(generation: part.generation, path: part.path, resumingAt: part.length)
        )
    }

    /// The rules for an attempt: from where to ask, and under which validator.
    func rules(for source: TransferURL, isRanged: Bool) -> ResponseRules {
        var rules = ResponseRules(
            size: request.size?.rawValue,
            promise: request.promise,
            toleratesMissing: request.toleratesMissing,
            isGet: request.method == "GET",
            acceptsErrorResponses: request.acceptsErrorResponses,
            acceptsTransientResponses: request.acceptsTransientResponses
                || !request.isRepeatedSafely,
            isBodyless: request.method == "HEAD"
        )
        rules.detectsPortals = request.detectsPortals
        rules.decodesContent = request.decodesContent
        // Past the end there is nothing but the server's word that it is one, which the caller's
        // own knowledge of the size makes superfluous.
        guard isRanged, let usable, usable.length > 0,
            usable.length < usable.total || request.size == nil
        else { return rules }
        let isSameSource = usable.record.url == source.display
        let validator = isSameSource ? usable.record.validator : nil
        guard validator != nil || request.isContentAddressed else { return rules }
        rules.offset = usable.length
        rules.heldTotal = usable.total
        rules.validator = validator
        return rules
    }

    /// Tells what an attempt came to, where that is not the end of it.
    func tell(_ outcome: DownloadMachine.Outcome) {
        switch outcome {
        case .complete, .local: break
        case .restart: request.report(.restarted(.contentChanged))
        case .distrustRanges: request.report(.restarted(.unreliableRanges))
        case .transient(let error, _), .permanent(let error):
            request.report(.mirrorFailed(url: urls[machine.mirror].display, error))
        }
    }

    /// What an attempt came to, for the log.
    func metadata(
        _ outcome: DownloadMachine.Outcome,
        _ progress: DownloadMachine.Progress
    ) -> Logger.Metadata {
        [
            "transfer.url": "\(urls[machine.mirror].display)",
            "transfer.outcome": "\(outcome)",
            "transfer.bytes": "\(progress.newBytes)",
        ]
    }

    /// What the finished download cost.
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
    /// Reads the mirrors of a request; those that cannot be used are reported and left out.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if none is left.
    static func mirrors(
        _ texts: [String],
        _ allowed: AllowedDomains?,
        _ report: (TransferEvent) -> Void
    ) throws(TransferError) -> [TransferURL] {
        var urls: [TransferURL] = []
        var first: TransferError?
        for text in texts {
            do throws(TransferError) {
                let url = try TransferURL(text)
                try RedirectRules.check(url, allowed)
                urls.append(url)
            } catch {
                first = first ?? error
                report(.mirrorFailed(url: text, error))
            }
        }
        if urls.isEmpty { throw first ?? .unacceptable(url: "", .noMirror) }
        return urls
    }
}

extension ResponseRules {
    /// The header fields of the request that an answer to is judged by these rules.
    var fields: [String] {
        var fields = ["Accept-Encoding: identity"]
        if offset > 0 {
            fields.append("Range: bytes=\(offset)-")
            if let validator { fields.append("If-Range: \(validator.text)") }
        }
        return fields
    }
}
