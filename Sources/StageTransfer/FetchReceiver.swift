import CCurl
import StageModel

/// Collects the body of one response in memory, once the rules allow it.
final class FetchReceiver: ExchangeReceiver {
    private let redirects: RedirectChain
    private let source: String
    private let rules: ResponseRules
    private let request: FetchRequest
    private let report: @Sendable (TransferEvent) -> Void

    private(set) var decision: ResponseRules.Decision?
    private var head: ResponseHead?
    private var bytes: [UInt8] = []
    private var count: Int64 = 0
    private var isTooLarge = false
    /// `true` if the consumer of the bytes needs no more of them.
    private var isUnwanted = false

    init(_ request: FetchRequest, redirects: RedirectChain, source: String, rules: ResponseRules) {
        self.redirects = redirects
        self.source = source
        self.rules = rules
        self.request = request
        report = request.report
    }

    private var url: TransferURL { redirects.url }

    /// Status of the response; 0 before it arrives.
    var status: Int { head?.status ?? 0 }

    func wait() { report(.waiting(.connection, nil)) }

    func connect() { report(.connecting(url: url.display)) }

    func receive(_ head: ResponseHead) -> BodyUse {
        let decision = request.judgePart(head) ?? rules.judge(head)
        self.decision = decision
        self.head = head
        if decision.isFinal { report(.responded(ResponseSummary(head, at: redirects))) }
        guard decision == .begin else { return .skip }
        request.take?(.began(offset: request.part?.range.lowerBound ?? 0))
        bytes.reserveCapacity(request.take == nil ? Int(head.bodyLength ?? 0) : Self.pieceSize)
        return .take
    }

    func receive(_ body: Span<UInt8>) -> Bool {
        guard request.isWanted?() != false else {
            isUnwanted = true
            return false
        }
        count += Int64(body.count)
        guard count <= rules.limit else {
            isTooLarge = true
            return false
        }
        unsafe body.withUnsafeBufferPointer { unsafe bytes.append(contentsOf: $0) }
        if bytes.count >= Self.pieceSize { deliverBytes() }
        return true
    }

    /// Number of bytes that are handed over at once.
    private static let pieceSize = 256 << 10

    /// Hands over the received bytes if the request has a consumer.
    private func deliverBytes() {
        guard let take = request.take, !bytes.isEmpty else { return }
        request.receiveWindow?.add(bytes.count)
        take(.bytes(bytes))
        bytes.removeAll(keepingCapacity: true)
    }

    /// Returns the outcome of the ended exchange; `nil` for a redirect.
    func outcome(_ end: ExchangeEnd) -> TransferStateMachine.Outcome? {
        // The bytes of a truncated body are useful, too.
        deliverBytes()
        if isTooLarge { return .decided(.tooLarge, url: url.display, source: source, size: limit) }
        if isUnwanted || (end.code == nil && end.stalled == nil) { return .local(.cancelled) }
        guard let decision else { return .failed(end, url: url.display) }
        if decision == .begin, !end.isComplete { return .failed(end, url: url.display) }
        // Without a Content-Length, a connection that breaks looks like the end of the body.
        if decision == .begin, let length = request.part?.range.count, count < Int64(length) {
            let detail = "the content ended after \(count) of \(length.quantity(of: "byte"))"
            return .transient(.unreachable(url: url.display, detail: detail), pause: nil)
        }
        return .decided(decision, url: url.display, source: source, size: limit)
    }

    private var limit: Int64 { rules.limit }

    /// The received content, once the exchange is complete.
    var fetched: FetchedContent {
        guard decision == .begin else { return .notModified }
        return .document(
            FetchedDocument(
                bytes: bytes,
                entityTag: head.flatMap { Validator.entityTag(of: $0) },
                lastModified: head?.lastModified,
                url: url.display
            )
        )
    }
}
