import StageTransfer
public import StageWebSocket

/// Rules by which a client opens a new WebSocket connection after it has lost one, or could not open one.
///
/// The delay before the n-th attempt after failures in a row is a random time between half and all of
/// `initialDelay` × 2ⁿ⁻¹, `maximumDelay` at most. A connection that lasts for ``minimumUptime`` ends a row of failures; one
/// that breaks earlier counts as a failure, so that a server that accepts connections and drops them is asked less and less
/// often.
public struct WebSocketReconnectPolicy: Sendable {
    /// Longest delay before the first attempt after a failure.
    public var initialDelay = Duration.seconds(1)
    /// Longest delay before any attempt, without the time that a server asks for.
    public var maximumDelay = Duration.seconds(60)
    /// Time that a connection must last to end a row of failures.
    public var minimumUptime = Duration.seconds(30)
    /// Number of failures in a row after which no attempt is made any more; `nil` for no limit.
    public var maximumAttempts: Int?
    /// Time after the start of a row of failures within which an attempt must begin; `nil` for no limit.
    ///
    /// An attempt that has not opened a connection by then ends, too. An open connection is not concerned.
    public var giveUpAfter: Duration?
    /// Longest time that a server may ask for with `Retry-After`; one that asks for more has refused for good.
    ///
    /// The time, of the answers 429 and 503, is added to the delay.
    public var longestPause = Duration.seconds(3600)
    /// Codes of a server's close frame after which no new connection is opened.
    ///
    /// ``CloseCode/normalClosure`` ends the sequence of events, the others make it throw
    /// ``WebSocketClientError/closed(_:)``. By default these are 1000, 1002, 1003, 1007, 1008, 1009 and 1010: the same
    /// conversation would end the same way. After 1001, 1011 to 1014, the codes of applications (3000 to 4999) and a close
    /// frame without a code a new connection is opened.
    public var finalCloseCodes: Set<CloseCode> = [
        .normalClosure, .protocolError, .unsupportedData, .invalidPayload, .policyViolation,
        .messageTooBig, .mandatoryExtensionMissing,
    ]

    /// Creates a policy that retries without a limit, after a second at first and after a minute at most.
    public init() {}

    /// Returns whether another attempt may end differently.
    ///
    /// Statuses of the opening handshake that pass are 408, 425, 429 and those from 500 on, except 501 and 505, which
    /// speak of what the server cannot do. A certificate that cannot be verified, a proxy that wants credentials and an
    /// answer or a frame that breaks the protocol stay until a person changes something.
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

    /// Returns the delay after a number of failures in a row, given a random number from 0 up to 1.
    func delay(afterFailures count: Int, random: Double) -> Duration {
        let doublings = min(max(count - 1, 0), 40)
        let ceiling = min(maximumDelay, initialDelay * (1 << doublings))
        return ceiling / 2 + ceiling / 2 * random
    }
}

/// The decision on what follows the end of a connection or of an attempt: a pure value that knows no clock.
struct ReconnectState {
    /// The end of a connection, or of an attempt to open one.
    struct End {
        /// The reason.
        var reason: WebSocketClientError
        /// Time for which the connection was open; `nil` if it was not.
        var uptime: Duration?
        /// Time that the server asked to wait.
        var retryAfter: Duration?
    }

    /// The next step.
    enum Step: Equatable {
        /// Connect after a delay.
        case connect(after: Duration)
        /// End without an error.
        case end
        /// End with an error.
        case fail(WebSocketClientError)
    }

    let policy: WebSocketReconnectPolicy
    /// Number of failures in a row.
    private(set) var failures = 0
    /// Start of the row of failures, measured as the arguments are.
    private var start = Duration.zero

    init(_ policy: WebSocketReconnectPolicy) { self.policy = policy }

    /// Returns the time that an attempt may take that begins at `moment`, if there is a limit.
    func timeLeft(at moment: Duration) -> Duration? {
        policy.giveUpAfter.map { max($0 - (moment - start), .zero) }
    }

    /// Takes in an end at `moment`, a time since the scope began, and returns the next step.
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
        guard pause <= policy.longestPause else { return .fail(end.reason) }
        let delay = pause + policy.delay(afterFailures: failures, random: random)
        let isExhausted = policy.maximumAttempts.map { failures >= $0 && failures > 0 } ?? false
        let isTooLate = timeLeft(at: moment).map { delay >= $0 } ?? false
        guard !isExhausted, !isTooLate else {
            return .fail(.retriesExhausted(failures: failures, last: end.reason))
        }
        return .connect(after: delay)
    }
}
