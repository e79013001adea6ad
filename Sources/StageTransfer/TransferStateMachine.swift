import StageModel

/// Decides the next action of a transfer: the mirror, the range, the delay, and when to give up.
///
/// It does no I/O and reads neither clock nor random numbers: each event carries both.
struct TransferStateMachine {
    /// An event that the machine handles.
    enum Event {
        /// The transfer begins; `isComplete` is `true` if a local file already has all of the content.
        case began(isComplete: Bool)
        /// The last requested attempt has ended.
        case ended(Outcome, Progress)
        /// The last requested delay has elapsed.
        case waited
        /// The complete content was verified; `nil` if it is the requested content.
        case verified(DigestMismatch?)
        /// The complete content failed verification, and an earlier run had received part of it.
        case resumedContentIsWrong
    }

    /// The outcome of an attempt.
    enum Outcome: Equatable {
        /// All bytes were received.
        case complete
        /// The partial file does not match the server's content and must be discarded.
        case restart
        /// The host answered a range request incorrectly, as the text says.
        case distrustRanges(String)
        /// The server responded to a probe with content; the partial file is unchanged.
        case probeSucceeded
        /// A temporary failure; `pause` is the delay that the server asks for.
        case transient(TransferError, pause: Duration?)
        /// A failure that would recur at this mirror.
        case permanent(TransferError)
        /// A failure that is unrelated to the mirror, such as a full disk.
        case local(TransferError)
    }

    /// The progress of an attempt.
    struct Progress: Equatable {
        /// `true` if a body was received.
        var wasAccepted = false
        /// Number of bytes added to the partial file.
        var newBytes: Int64 = 0
        /// `true` if at least one checkpoint's worth of bytes became durable.
        var isDurable = false
        /// `true` if a request for a range was sent, and no body accepted.
        var isRangeUnanswered = false
    }

    /// An action for the engine.
    enum Action: Equatable {
        /// Send a request to a mirror, by its index in the request; without `isRanged`, for the whole content.
        case attempt(mirror: Int, isRanged: Bool)
        /// Send a request without a range to a mirror, read only the head of the response, and keep the partial file.
        case probe(mirror: Int)
        /// Wait before the next attempt.
        case wait(Duration, TransferEvent.WaitReason)
        /// Verify the content.
        case verify
        /// Succeed.
        case succeed
        /// Fail.
        case fail(TransferError)
    }

    /// Time of an event, with an unpredictable random number in 0..<1.
    struct Moment {
        var now: Duration
        var random: Double
    }

    private struct Mirror {
        var position: Int
        var host: String
        var url: String
        var verdict: TransferError?
        var notBefore = Duration.zero
        var wasTried = false
        var failuresInRow = 0
        /// Number of probes to which the mirror responded with content since requests for ranges fail, without another failure
        /// or a body in between.
        var passedProbes = 0
        var wrongDigests = 0
    }

    private let policy: RetryPolicy
    private var mirrors: [Mirror]
    private var current = 0
    private var failures = 0
    private var failuresBefore: Int
    private var wrongDigests = 0
    private var lastProgress = Duration.zero
    private var lastError = TransferError.unacceptable(url: "", .noMirror)
    private var portal: TransferError?
    private var startsOver = false
    /// `true` if the transfer has waited, since its last request, for a delay that a host had asked another one for.
    private var hasWaitedForHost = false
    /// `true` if the next attempt asks the same mirror for the whole content, after a wrong response to a range request.
    private var distrustsRanges = false
    /// `true` if the next attempt asks the same mirror for the whole content, since only range requests fail.
    private var doubtsRanges = false

    /// Number of requests sent to mirrors.
    private(set) var attempts = 0

    /// Index, in the request, of the mirror that was used last.
    var mirror: Int { mirrors.isEmpty ? 0 : mirrors[current].position }

    /// Creates a machine for mirrors, each given by its host and its URL.
    ///
    /// `failuresBefore` counts earlier rounds in which all mirrors failed: they lengthen the delays and do not reduce
    /// the number of attempts.
    init(
        mirrors: [(host: String, url: String)],
        policy: RetryPolicy,
        history: MirrorHistory,
        failuresBefore: Int = 0
    ) {
        self.policy = policy
        self.failuresBefore = min(max(failuresBefore, 0), 1 << 20)
        self.mirrors = history.order(mirrors.map(\.host)).map {
            Mirror(position: $0, host: mirrors[$0].host, url: mirrors[$0].url)
        }
    }

    /// Handles an event, and returns the next action.
    mutating func handle(
        _ event: Event,
        history: inout MirrorHistory,
        at moment: Moment
    ) -> Action {
        switch event {
        case .began(let isComplete):
            lastProgress = moment.now
            return isComplete ? .verify : next(history, at: moment)
        case .waited:
            return next(history, at: moment)
        case .verified(nil):
            if attempts > 0 { history.recordSuccess(of: mirrors[current].host) }
            return .succeed
        case .verified(let mismatch?):
            return startOver(after: mismatch, &history, at: moment)
        case .resumedContentIsWrong:
            // Bytes from an earlier run are no evidence against a mirror.
            startsOver = true
            for index in mirrors.indices { mirrors[index].wasTried = false }
            return next(history, at: moment)
        case .ended(let outcome, let progress):
            if progress.wasAccepted {
                startsOver = false
                mirrors[current].passedProbes = 0
                // Only an accepted request for the whole content shows that the server has refused the range, and not the content.
                if distrustsRanges { history.recordUnsafeRanges(of: mirrors[current].host) }
            }
            distrustsRanges = false
            doubtsRanges = false
            return finish(outcome, progress: progress, history: &history, at: moment)
        }
    }

    private mutating func finish(
        _ outcome: Outcome,
        progress: Progress,
        history: inout MirrorHistory,
        at moment: Moment
    ) -> Action {
        switch outcome {
        case .complete:
            return .verify
        case .restart:
            startsOver = true
            return ask(current, history: history)
        case .distrustRanges:
            distrustsRanges = true
            return ask(current, history: history)
        case .probeSucceeded:
            mirrors[current].passedProbes += 1
            return ask(current, history: history)
        case .local(let error):
            return .fail(error)
        case .permanent(let error):
            record(error, in: &history)
            mirrors[current].verdict = error
            return next(history, at: moment)
        case .transient(let error, let pause):
            record(error, in: &history)
            if let pause, case .refused(let url, let status, _) = error,
                [429, 503].contains(status)
            {
                // After redirects, another host than the mirror's has responded.
                let host = URLReference(url).origin?.authority ?? mirrors[current].host
                history.recordDelay(of: host, lasting: pause)
            }
            return retry(
                after: pause,
                error: error,
                progress: progress,
                history: history,
                at: moment
            )
        }
    }

    private mutating func record(_ error: TransferError, in history: inout MirrorHistory) {
        lastError = error
        if case .captivePortal = error { portal = portal ?? error }
        if error.blamesHost { history.recordFailure(of: mirrors[current].host) }
    }

    /// Decides after a temporary failure: retries a mirror that just delivered bytes once before trying others.
    ///
    /// Some servers and caches fail for range requests only, with errors that do not mention ranges: a download that has
    /// begun could then never be resumed. So each third consecutive failure of a range request is followed by a probe, a
    /// request without a range. If it succeeds, the range is requested once more, since an outage may have ended. If that
    /// fails, too, the next probe follows. The whole content is requested only after three successful probes, each followed
    /// by a failure of the range: an outage may come and go, and the whole content replaces the bytes that have arrived.
    private mutating func retry(
        after pause: Duration?,
        error: TransferError,
        progress: Progress,
        history: MirrorHistory,
        at moment: Moment
    ) -> Action {
        if progress.isDurable {
            failures = 0
            failuresBefore = 0
            lastProgress = moment.now
            for index in mirrors.indices {
                mirrors[index].wasTried = false
                mirrors[index].failuresInRow = 0
                mirrors[index].passedProbes = 0
            }
        }
        mirrors[current].failuresInRow += 1
        let mayConcernRange = pause == nil && progress.isRangeUnanswered && error.mayConcernRange
        if !mayConcernRange {
            mirrors[current].passedProbes = 0
        } else if let action = probeAfterRangeFailure(history) {
            return action
        }
        if let pause {
            let notBefore = moment.now + pause + policy.base * moment.random
            mirrors[current].notBefore = notBefore
        } else if progress.newBytes > 0, mirrors[current].failuresInRow < 2 {
            mirrors[current].wasTried = false
            return wait(moment)
        }
        return next(history, at: moment)
    }

    /// Probes the current mirror, or asks it for the whole content; returns `nil` if another request for a range follows.
    private mutating func probeAfterRangeFailure(_ history: MirrorHistory) -> Action? {
        let passedProbes = mirrors[current].passedProbes
        let count = failuresBefore + mirrors[current].failuresInRow
        if passedProbes >= Self.probesBeforeWhole {
            doubtsRanges = true
            return ask(current, history: history)
        }
        guard passedProbes > 0 || count.isMultiple(of: Self.failuresBeforeProbe) else {
            return nil
        }
        attempts += 1
        return .probe(mirror: mirrors[current].position)
    }

    /// Decides after the complete content failed verification.
    ///
    /// A mirror with wrong content is asked once more, after the others, since a proxy may have damaged the content; but not if all
    /// other mirrors have wrong content, too.
    private mutating func startOver(
        after mismatch: DigestMismatch,
        _ history: inout MirrorHistory,
        at moment: Moment
    ) -> Action {
        startsOver = true
        guard attempts > 0 else { return next(history, at: moment) }
        wrongDigests += 1
        let error = TransferError.wrongDigest(url: mirrors[current].url, mismatch)
        record(error, in: &history)
        mirrors[current].wrongDigests += 1
        if mirrors[current].wrongDigests == Self.maximumWrongDigests {
            mirrors[current].verdict = error
        }
        let hasOther = mirrors.contains { $0.verdict == nil && $0.wrongDigests == 0 }
        guard hasOther || wrongDigests < Self.maximumWrongDigests else { return .fail(error) }
        mirrors.append(mirrors.remove(at: current))
        for index in mirrors.indices { mirrors[index].wasTried = false }
        return next(history, at: moment)
    }

    /// Uses the next mirror of this round, or ends the round.
    ///
    /// A mirror whose host has requested a delay of another transfer comes after the others. If there is no other, the transfer
    /// waits as well, but once before each request: the server may mean another resource.
    private mutating func next(_ history: MirrorHistory, at moment: Moment) -> Action {
        let ready = mirrors.indices.filter {
            mirrors[$0].verdict == nil && !mirrors[$0].wasTried
                && mirrors[$0].notBefore <= moment.now
        }
        guard let first = ready.first else { return wait(moment) }
        let delays = ready.map { history.remainingDelay(of: mirrors[$0].host) }
        if let index = delays.firstIndex(of: .zero) { return ask(ready[index], history: history) }
        let delay = delays.min() ?? .zero
        guard !hasWaitedForHost, mayWait(delay, at: moment) else {
            return ask(first, history: history)
        }
        hasWaitedForHost = true
        return .wait(delay + policy.base * moment.random, .server)
    }

    /// Returns whether the policy permits a delay that a host has requested of another transfer.
    private func mayWait(_ delay: Duration, at moment: Moment) -> Bool {
        policy.maximumAttempts > 1 && delay <= policy.maximumRetryAfter
            && moment.now + delay - lastProgress <= policy.retryTimeLimit
    }

    private mutating func ask(_ index: Int, history: MirrorHistory) -> Action {
        current = index
        mirrors[index].wasTried = true
        hasWaitedForHost = false
        attempts += 1
        let isRanged =
            !startsOver && !distrustsRanges && !doubtsRanges
            && history.allowsRanges(from: mirrors[index].host)
        return .attempt(mirror: mirrors[index].position, isRanged: isRanged)
    }

    /// Ends a round: waits for the next one, or gives up.
    private mutating func wait(_ moment: Moment) -> Action {
        let alive = mirrors.indices.filter { mirrors[$0].verdict == nil }
        guard let ready = alive.map({ mirrors[$0].notBefore }).min() else {
            return .fail(portal ?? lastError)
        }
        guard ready - moment.now <= policy.maximumRetryAfter else { return .fail(lastError) }
        failures += 1
        guard failures < policy.maximumAttempts else { return .fail(lastError) }
        let count = failuresBefore + failures
        let backoff = policy.backoff(afterFailure: count, random: moment.random)
        let until = max(moment.now + backoff, ready)
        guard until - lastProgress <= policy.retryTimeLimit else { return .fail(lastError) }
        let goesOn = alive.contains { !mirrors[$0].wasTried && mirrors[$0].notBefore <= until }
        if !goesOn { for index in alive { mirrors[index].wasTried = false } }
        return .wait(until - moment.now, ready > moment.now + backoff ? .server : .backoff)
    }

    /// Number of range requests that fail in a row before a probe without a range.
    private static let failuresBeforeProbe = 3

    /// Number of successful probes, each followed by a failed range request, before the whole content is requested.
    private static let probesBeforeWhole = 3

    /// Number of failed verifications after which a mirror is asked no more.
    private static let maximumWrongDigests = 2
}
