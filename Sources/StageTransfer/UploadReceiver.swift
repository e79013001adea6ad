import CCurl
import StageModel

/// Takes in the answer to an upload.
final class UploadReceiver: ExchangeReceiver {
    private let route: Route
    /// The URL that messages and records show.
    private let display: String
    private let origin: String
    private let rules: ResponseRules
    private let source: UploadSource
    /// The step that the answer is to.
    let step: ResumableUpload.Step
    private let mayRepeat: Bool
    /// Whether the request sends more of a body in an attempt that has begun.
    private let isContinuing: Bool
    private let takeInterim: (ResponseHead) -> Void
    private let isAnswer: (ResponseHead) -> Bool
    private let report: @Sendable (TransferEvent) -> Void

    private(set) var decision: ResponseRules.Decision?
    /// The head of the final answer.
    private(set) var head: ResponseHead?
    private(set) var response: ResponseSummary?
    private(set) var body: [UInt8] = []
    /// Whether the rest of a long body was not waited for.
    private(set) var isCut = false
    /// Whether the answer was reported.
    private var isReported = false

    /// Creates a receiver for the answer to a step that `route` led to.
    init(_ upload: Upload, step: ResumableUpload.Step, route: Route, rules: ResponseRules) {
        self.route = route
        self.rules = rules
        self.step = step
        display = upload.display(route.url, in: step)
        origin = upload.target.display
        source = upload.source
        isContinuing = step.hasBody && !step.isCreation && !upload.isBeginning
        takeInterim = { upload.take(interim: $0, from: route.url) }
        isAnswer = { upload.machine.endsUpload($0) }
        mayRepeat = upload.request.repeatsTransientAnswers
        report = upload.request.report
    }

    /// The URL that was asked.
    var url: TransferURL { route.url }

    /// The status of the answer; 0 before there is one.
    var status: Int { response?.status ?? 0 }

    func wait() { report(.waiting(.connection, nil)) }

    func connect() {
        report(isContinuing ? .continuing(url: display) : .connecting(url: display))
    }

    func receive(interim head: ResponseHead) { takeInterim(head) }

    func receive(_ head: ResponseHead) -> BodyUse {
        let decision = rules.judgeUpload(head, mayRepeat: mayRepeat)
        var response = ResponseSummary(head, at: route)
        response.url = display
        self.decision = decision
        self.response = response
        self.head = head
        body = []
        // The end of the exchange decides about the others.
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

    /// Reports the answer, once, as the upload's.
    func reportResponse() {
        guard let response, !isReported else { return }
        isReported = true
        report(.responded(response))
    }

    /// How much of the body of an answer is kept.
    private static let limit = 1 << 20

    /// Whether all of the body was handed over, where the request has one.
    var isBodySent: Bool { !step.hasBody || source.isSent }

    /// What the exchange comes to, once it has ended; `nil` stands for a redirect.
    func outcome(_ end: ExchangeEnd) -> DownloadMachine.Outcome? {
        if let failure = source.failure { return .local(failure) }
        let url = display
        // An answer counts whose body was not waited for.
        let isAnswered = decision == .begin && isBodySent
        if end.code == nil, end.stalled == nil, !isAnswered { return .local(.cancelled) }
        guard let decision else { return .failed(end, url: url) }
        // A success that came before the last byte was sent, on a connection that did not last, is not
        // one to rely on.
        if decision == .begin, status < 400, !end.isComplete, !isCut, !isBodySent {
            return .failed(end, url: url)
        }
        return .decided(decision, url: url, source: origin, size: source.size)
    }

    /// The outcome for a body that is not to be sent again once the server may act on it, or has answered.
    func withoutRepetition(
        _ outcome: DownloadMachine.Outcome,
        _ end: ExchangeEnd
    ) -> DownloadMachine.Outcome {
        status != 0 || source.isSent && end.wasRequestSent ? outcome.withoutRepetition : outcome
    }

    /// Whether ``body`` is all of the answer's, given how the exchange ended.
    func isWhole(_ end: ExchangeEnd) -> Bool { end.isComplete && !isCut }
}
