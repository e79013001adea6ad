import Synchronization

/// A reply that one task waits for; the first one counts.
final class PendingReply<Answer: Sendable>: Sendable {
    private enum State {
        case asked
        case waiting(CheckedContinuation<Answer, Never>)
        case early(Answer)
        case given
    }

    private let state = Mutex(State.asked)

    func wait(_ continuation: CheckedContinuation<Answer, Never>) {
        let early = state.withLock { state -> Answer? in
            if case .early(let answer) = state {
                state = .given
                return answer
            }
            state = .waiting(continuation)
            return nil
        }
        if let early { continuation.resume(returning: early) }
    }

    func give(_ answer: Answer) {
        let continuation = state.withLock { state -> CheckedContinuation<Answer, Never>? in
            switch state {
            case .asked:
                state = .early(answer)
                return nil
            case .waiting(let continuation):
                state = .given
                return continuation
            case .early, .given: return nil
            }
        }
        continuation?.resume(returning: answer)
    }
}
