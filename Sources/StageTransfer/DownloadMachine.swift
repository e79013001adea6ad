/// Decides what a transfer does next: which mirror, from where, when, and when to give up.
///
/// It does nothing itself and knows neither time nor chance: both come with each event.
struct DownloadMachine {
    /// What happened.
    enum Event {
        /// The transfer begins; `isComplete` says whether all of the content is here already.
        case began(isComplete: Bool)
        /// The attempt asked for last came to its end.
        case ended(Outcome, Progress)
        /// The wait asked for last is over.
        case waited
        /// The complete content was, or was not, what was promised.
        case verified(Bool)
    }

    /// How an attempt ended.
    enum Outcome: Equatable {
        /// With the last byte.
        case complete
        /// What was held is of no use.
        case restart
        /// The host answered a request for a range wrongly.
        case distrustRanges
        /// In a way that may pass.
        case transient(TransferError, pause: Duration?)
        /// In a way that this mirror will repeat.
        case permanent(TransferError)
        /// In a way that has nothing to do with the mirror.
        case local(TransferError)
    }

    /// What an attempt brought.
    struct Progress: Equatable {
        /// Whether a body was taken.
        var wasAccepted = false
        /// How many bytes it added.
        var newBytes: Int64 = 0
        /// Whether a whole checkpoint of bytes was made durable.
        var isDurable = false
    }

    /// What is to be done.
    enum Action: Equatable {
        /// Ask a mirror, by its position in the request; without a range everything is asked for.
        case attempt(mirror: Int, isRanged: Bool)
        /// Wait.
        case wait(Duration, TransferEvent.WaitReason)
        /// Find out whether the content is what was promised.
        case verify
        /// End well.
        case succeed
        /// End.
        case fail(TransferError)
    }

    /// When an event happened, and a number from 0 up to 1 that nobody could foresee.
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

    /// How many times a mirror was asked.
    private(set) var attempts = 0

    /// The position, in the request, of the mirror that was asked last.
    var mirror: Int { mirrors.isEmpty ? 0 : mirrors[current].position }

    /// Creates a machine for mirrors, each given by its host and its URL, all of which failed so many
    /// times before: that lengthens the waits, and leaves the attempts as many as they are.
    init(
        mirrors: [(host: String, url: String)],
        policy: RetryPolicy,
        memory: MirrorMemory,
        failuresBefore: Int = 0
    ) {
        self.policy = policy
        self.failuresBefore = min(max(failuresBefore, 0), 1 << 20)
        self.mirrors = memory.order(mirrors.map(\.host)).map {
            Mirror(position: $0, host: mirrors[$0].host, url: mirrors[$0].url)
        }
    }

    /// Takes in what happened, and says what to do next.
    mutating func handle(_ event: Event, _ memory: inout MirrorMemory, at moment: Moment) -> Action
    {
        switch event {
        case .began(let isComplete):
            lastProgress = moment.now
            return isComplete ? .verify : next(memory, at: moment)
        case .waited:
            return next(memory, at: moment)
        case .verified(true):
            if attempts > 0 { memory.recordSuccess(of: mirrors[current].host) }
            return .succeed
        case .verified(false):
            return startOver(&memory, at: moment)
        case .ended(let outcome, let progress):
            if progress.wasAccepted { startsOver = false }
            return finish(outcome, progress, &memory, at: moment)
        }
    }

    private mutating func finish(
        _ outcome: Outcome,
        _ progress: Progress,
        _ memory: inout MirrorMemory,
        at moment: Moment
    ) -> Action {
        switch outcome {
        case .complete:
            return .verify
        case .restart:
            startsOver = true
            return ask(current, memory)
        case .distrustRanges:
            memory.recordUnsafeRanges(of: mirrors[current].host)
            startsOver = true
            return ask(current, memory)
        case .local(let error):
            return .fail(error)
        case .permanent(let error):
            record(error, &memory)
            mirrors[current].verdict = error
            return next(memory, at: moment)
        case .transient(let error, let pause):
            record(error, &memory)
            return retry(after: pause, progress, memory, at: moment)
        }
    }

    private mutating func record(_ error: TransferError, _ memory: inout MirrorMemory) {
        lastError = error
        if case .captivePortal = error { portal = portal ?? error }
        if error.blamesHost { memory.recordFailure(of: mirrors[current].host) }
    }

    /// Decides after a failure that may pass: a mirror that just delivered bytes is asked once more
    /// before others are.
    private mutating func retry(
        after pause: Duration?,
        _ progress: Progress,
        _ memory: MirrorMemory,
        at moment: Moment
    ) -> Action {
        if progress.isDurable {
            failures = 0
            failuresBefore = 0
            lastProgress = moment.now
            for index in mirrors.indices {
                mirrors[index].wasTried = false
                mirrors[index].failuresInRow = 0
            }
        }
        mirrors[current].failuresInRow += 1
        if let pause {
            let notBefore = moment.now + pause + policy.base * moment.random
            mirrors[current].notBefore = notBefore
        } else if progress.newBytes > 0, mirrors[current].failuresInRow < 2 {
            mirrors[current].wasTried = false
            return wait(moment)
        }
        return next(memory, at: moment)
    }

    /// Decides after the whole content turned out to be something else.
    private mutating func startOver(
        _ memory: inout MirrorMemory,
        at moment: Moment
    ) -> Action {
        startsOver = true
        // What an earlier run left here speaks against no mirror.
        guard attempts > 0 else { return next(memory, at: moment) }
        wrongDigests += 1
        let error = TransferError.wrongDigest(url: mirrors[current].url)
        record(error, &memory)
        guard wrongDigests < Self.maximumWrongDigests else { return .fail(error) }
        mirrors.append(mirrors.remove(at: current))
        for index in mirrors.indices { mirrors[index].wasTried = false }
        return next(memory, at: moment)
    }

    /// Asks the next mirror of this round, or ends the round.
    private mutating func next(_ memory: MirrorMemory, at moment: Moment) -> Action {
        let choice = mirrors.indices.first {
            mirrors[$0].verdict == nil && !mirrors[$0].wasTried
                && mirrors[$0].notBefore <= moment.now
        }
        guard let choice else { return wait(moment) }
        return ask(choice, memory)
    }

    private mutating func ask(_ index: Int, _ memory: MirrorMemory) -> Action {
        current = index
        mirrors[index].wasTried = true
        attempts += 1
        let isRanged = !startsOver && memory.allowsRanges(from: mirrors[index].host)
        return .attempt(mirror: mirrors[index].position, isRanged: isRanged)
    }

    /// Ends a round: waits for the next one, or gives up.
    private mutating func wait(_ moment: Moment) -> Action {
        let alive = mirrors.indices.filter { mirrors[$0].verdict == nil }
        guard let ready = alive.map({ mirrors[$0].notBefore }).min() else {
            return .fail(portal ?? lastError)
        }
        guard ready - moment.now <= policy.longestPause else { return .fail(lastError) }
        failures += 1
        guard failures < policy.maximumAttempts else { return .fail(lastError) }
        let count = failuresBefore + failures
        let backoff = policy.backoff(afterFailure: count, random: moment.random)
        let until = max(moment.now + backoff, ready)
        guard until - lastProgress <= policy.giveUpAfter else { return .fail(lastError) }
        let goesOn = alive.contains { !mirrors[$0].wasTried && mirrors[$0].notBefore <= until }
        if !goesOn { for index in alive { mirrors[index].wasTried = false } }
        return .wait(until - moment.now, ready > moment.now + backoff ? .server : .backoff)
    }

    /// How many times content may turn out to be something else.
    private static let maximumWrongDigests = 2
}
