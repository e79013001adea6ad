import StageTransfer
public import StageWebSocket

/// Rules for opening a new WebSocket connection after one was lost, or could not be opened.
///
/// The delay before the n-th consecutive attempt is a random time between half and all of `initialDelay` × 2ⁿ⁻¹, at
/// most `maximumDelay`. A connection that lasts for ``minimumUptime`` resets the number of failures; one that breaks
/// earlier counts as a failure, so that a server that accepts and drops connections receives attempts at increasing
/// intervals.
public struct WebSocketReconnectPolicy: Sendable {
    /// Longest delay before the first attempt after a failure.
    public var initialDelay = Duration.seconds(1)
    /// Longest delay before any attempt, without the time that a server asks for.
    public var maximumDelay = Duration.seconds(60)
    /// Time that a connection must last to reset the number of failures.
    public var minimumUptime = Duration.seconds(30)
    /// Number of consecutive failures after which there are no more attempts; `nil` for no limit.
    public var maximumAttempts: Int?
    /// Time after the first of consecutive failures within which an attempt must begin; `nil` for no limit.
    ///
    /// An attempt that has not opened a connection by then ends, too. An open connection is not affected.
    public var retryTimeLimit: Duration?
    /// Longest time that a server may ask for with `Retry-After`; a longer one is a permanent failure.
    ///
    /// The time, from the responses 429 and 503, is added to the delay.
    public var maximumRetryAfter = Duration.seconds(3600)
    /// Codes of a server's close frame after which no new connection is opened.
    ///
    /// `CloseCode.normalClosure` ends the sequence of events, the others make it throw
    /// ``WebSocketClientError/closed(_:)``. By default these are 1000, 1002, 1003, 1007, 1008, 1009 and 1010, after
    /// which the same conversation would end the same way. After 1001, 1011 to 1014, the codes of applications (3000
    /// to 4999) and a close frame without a code a new connection is opened.
    public var finalCloseCodes: Set<CloseCode> = [
        .normalClosure, .protocolError, .unsupportedData, .invalidPayload, .policyViolation,
        .messageTooBig, .mandatoryExtensionMissing,
    ]

    /// Creates a policy that retries without a limit, with delays from a second to a minute.
    public init() {}

    /// Returns whether another attempt may succeed.
    ///
    /// Temporary statuses of the opening handshake are 408, 425, 429 and those from 500 on, except 501 and 505, which
    /// describe missing features of the server. A certificate that cannot be verified, a proxy that requires
    /// credentials, and a response or a frame that violates the protocol remain until a person corrects the cause.
    func retries(after reason: WebSocketClientError) -> Bool {
        switch reason {
        case .closed(let close): close.code.map { !finalCloseCodes.contains($0) } ?? true
        case .connection(let error): error.isWorthRetrying && error != .cancelled
        case .lost, .silent, .slowHandshake: true
        case .webSocket(.refused(let status)):
            [408, 425, 429].contains(status) || status >= 500 && status != 501 && status != 505
        case .webSocket, .cancelled, .notConnected, .retriesExhausted: false
        }
    }

    /// Returns the delay after a number of consecutive failures, given a random number in 0..<1.
    func delay(afterFailures count: Int, random: Double) -> Duration {
        let doublings = min(max(count - 1, 0), 40)
        let ceiling = min(maximumDelay, initialDelay * (1 << doublings))
        return ceiling / 2 + ceiling / 2 * random
    }
}

/// State machine that decides the next step after the end of a connection or of an attempt; it reads no clock.
struct ReconnectState {
    /// End of a connection, or of an attempt to open one.
    struct End {
        /// The reason.
        var reason: WebSocketClientError
        /// Time for which the connection was open; `nil` if it was not.
        var uptime: Duration?
        /// Time that the server asked to wait.
        var retryAfter: Duration?
    }

    /// Next step.
    enum Step: Equatable {
        /// Connect after a delay.
        case connect(after: Duration)
        /// End without an error.
        case end
        /// End with an error.
        case fail(WebSocketClientError)
    }

    let policy: WebSocketReconnectPolicy
    /// Number of consecutive failures.
    private(set) var failures = 0
    /// Time of the first of the consecutive failures, since the scope began.
    private var start = Duration.zero

    init(_ policy: WebSocketReconnectPolicy) { self.policy = policy }

    /// Returns the time limit for an attempt that begins at `moment`; `nil` for none.
    func timeLeft(at moment: Duration) -> Duration? {
        policy.retryTimeLimit.map { max($0 - (moment - start), .zero) }
    }

    /// Handles an end at `moment`, a time since the scope began, and returns the next step.
    mutating func handle(_ end: End, at moment: Duration, random: Double) -> Step {
        if let uptime = end.uptime, uptime >= policy.minimumUptime {
            (failures, start) = (0, moment)
        } else {
            failures += 1
        }
        guard policy.retries(after: end.reason) else {
            if case .closed(let close) = end.reason, close.code == .normalClosure { return .end }
            return .fail(end.reason)
        }
        let pause = end.retryAfter ?? .zero
        guard pause <= policy.maximumRetryAfter else { return .fail(end.reason) }
        let delay = pause + policy.delay(afterFailures: failures, random: random)
        let isExhausted = policy.maximumAttempts.map { failures >= $0 && failures > 0 } ?? false
        let isTooLate = timeLeft(at: moment).map { delay >= $0 } ?? false
        guard !isExhausted, !isTooLate else {
            return .fail(.retriesExhausted(failures: failures, last: end.reason))
        }
        return .connect(after: delay)
    }
}
