import Dispatch
import Synchronization

/// A rate limit for reports that keeps the last one.
///
/// A report that comes too early is made when the interval has passed, unless a later one replaces it. If it were left out, a transfer
/// that stalls would for ever show the bytes of the report before.
package final class Throttle: Sendable {
    private struct State {
        /// The earliest time of the next report.
        var next: ContinuousClock.Instant?
        /// The report that came too early.
        var pending: (@Sendable () -> Void)?
        var isScheduled = false
        var hasEnded = false
    }

    private let interval: Duration
    // Held while a report is made: reports are in order, and none is made after `end()`.
    private let state = Mutex(State())

    /// Creates a throttle that makes a report at most once per interval.
    package init(interval: Duration) { self.interval = interval }

    /// Makes a report: on this thread, or when the interval has passed, on another thread.
    ///
    /// `report` must not call this object.
    package func run(_ report: @escaping @Sendable () -> Void) {
        state.withLock { state in
            guard !state.hasEnded else { return }
            state.pending = report
            makePending(&state)
        }
    }

    /// Runs `body`, during which no report is made.
    package func withoutReports<Result>(_ body: () -> Result) -> Result {
        state.withLock { _ in body() }
    }

    /// Makes the report that is pending, if any, and none after it.
    package func end() {
        state.withLock { state in
            state.hasEnded = true
            if let report = state.pending.take() { report() }
        }
    }

    private func makePending(_ state: inout State) {
        let now = ContinuousClock.now
        if let next = state.next, now < next {
            guard !state.isScheduled else { return }
            state.isScheduled = true
            let delay = (next - now) / .milliseconds(1)
            let due = DispatchTime.now() + .milliseconds(Int(delay.rounded(.up)))
            DispatchQueue.global().asyncAfter(deadline: due) { [self] in
                self.state.withLock { state in
                    state.isScheduled = false
                    if state.pending != nil { makePending(&state) }
                }
            }
        } else if let report = state.pending.take() {
            state.next = now + interval
            report()
        }
    }
}
