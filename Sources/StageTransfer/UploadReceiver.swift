import CCurl
import StageModel

/// Receives the response to an upload.
final class UploadReceiver: ExchangeReceiver {
    private let redirects: RedirectChain
    /// URL for messages and records.
    private let display: String
    private let origin: String
    private let rules: ResponseRules
    private let source: UploadSource
    /// Step that the response belongs to.
    let step: ResumableUpload.Step
    private let mayRepeat: Bool
    /// `true` if the request sends more of a body within an attempt.
    private let isContinuing: Bool
    private let takeInterim: (ResponseHead) -> Void
    private let isAnswer: (ResponseHead) -> Bool
    private let report: @Sendable (TransferEvent) -> Void

    private(set) var decision: ResponseRules.Decision?
    /// Head of the final response.
    private(set) var head: ResponseHead?
    private(set) var response: ResponseSummary?
    private(set) var body: [UInt8] = []
    /// `true` if the rest of a long body was not read.
    private(set) var isCut = false
    /// `true` once the response was reported.
    private var isReported = false

    /// Creates a receiver for the response to a step at the end of `redirects`.
    init(
        _ upload: Upload,
        step: ResumableUpload.Step,
        redirects: RedirectChain,
        rules: ResponseRules
    ) {
        self.redirects = redirects
        self.rules = rules
        self.step = step
        display = upload.display(redirects.url, in: step)
        origin = upload.target.display
        source = upload.source
        isContinuing = step.hasBody && !step.isCreation && !upload.isBeginning
        takeInterim = { upload.take(interim: $0, from: redirects.url) }
        isAnswer = { upload.machine.endsUpload($0) }
        mayRepeat = upload.request.repeatsTransientAnswers
        report = upload.request.report
    }

    /// URL of the request.
    var url: TransferURL { redirects.url }

    /// Status of the response; 0 before it arrives.
    var status: Int { response?.status ?? 0 }

    func wait() { report(.waiting(.connection, nil)) }

    func connect() {
        report(isContinuing ? .continuing(url: display) : .connecting(url: display))
    }

    func receive(interim head: ResponseHead) { takeInterim(head) }

    func receive(_ head: ResponseHead) -> BodyUse {
        let decision = rules.judgeUpload(head, mayRepeat: mayRepeat)
        var response = ResponseSummary(head, at: redirects)
        response.url = display
        self.decision = decision
        self.response = response
        self.head = head
        body = []
        // For other responses, the end of the exchange decides.
        isReported = false
        if decision.isFinal, isAnswer(head) { reportResponse() }
        return decision.takesBody ? .take : .skip
    }

    func receive(_ bytes: Span<UInt8>) -> Bool {
        let room = Self.limit - body.count
        let taken = bytes.extracting(first: room)
        unsafe taken.withUnsafeBufferPointer { unsafe body.append(contentsOf: $0) }
        isCut = bytes.count > room
        return !isCut
    }

    /// Reports the response as that of the upload, once.
    func reportResponse() {
        guard let response, !isReported else { return }
        isReported = true
        report(.responded(response))
    }

    /// Maximum number of response body bytes that are kept.
    private static let limit = 1 << 20

    /// `true` if libcurl has read all of the request's body, or it has none.
    var isBodySent: Bool { !step.hasBody || source.isSent }

    /// Returns the outcome of the ended exchange; `nil` for a redirect.
    func outcome(_ end: ExchangeEnd) -> TransferStateMachine.Outcome? {
        if let failure = source.failure { return .local(failure) }
        let url = display
        // A response counts even if its body was not read to the end.
        let isAnswered = decision == .begin && isBodySent
        if end.code == nil, end.stalled == nil, !isAnswered { return .local(.cancelled) }
        guard let decision else { return .failed(end, url: url) }
        // A 2xx response before the last byte was sent, on a connection that broke, is not reliable.
        if decision == .begin, status < 400, !end.isComplete, !isCut, !isBodySent {
            return .failed(end, url: url)
        }
        return .decided(decision, url: url, source: origin, size: source.size)
    }

    /// Returns the outcome for a body that must not be sent again once the server may have processed it or has
    /// responded.
    func withoutRepetition(
        _ outcome: TransferStateMachine.Outcome,
        end: ExchangeEnd
    ) -> TransferStateMachine.Outcome {
        status != 0 || source.isSent && end.wasRequestSent ? outcome.withoutRepetition : outcome
    }

    /// Returns whether ``body`` is the whole response body, given the end of the exchange.
    func isWhole(_ end: ExchangeEnd) -> Bool { end.isComplete && !isCut }
}
