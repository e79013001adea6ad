import Dispatch
import Foundation
import Synchronization

/// Timer for a single date, which causes no wake-ups before it.
///
/// Rings at the date by the wall clock, or after the time until then by the monotonic clock, whichever is first: the wall
/// clock counts time in suspend, and the monotonic one continues when the wall clock is set back.
final class WakeTimer: Sendable {
    private let state: Mutex<State>

    private struct State {
        let wallSource: any DispatchSourceTimer
        let monotonicSource: any DispatchSourceTimer
        var deadline: Date?
    }

    init(_ ring: @escaping @Sendable () -> Void) {
        let queue = DispatchQueue(label: "stage.timer")
        func source() -> any DispatchSourceTimer {
            let source = DispatchSource.makeTimerSource(queue: queue)
            source.setEventHandler { ring() }
            source.activate()
            return source
        }
        state = Mutex(State(wallSource: source(), monotonicSource: source()))
    }

    deinit {
        state.withLock { state in
            state.wallSource.cancel()
            state.monotonicSource.cancel()
        }
    }

    /// Sets the date to call the handler next; `nil` for never.
    func set(_ date: Date?) {
        state.withLock { state in
            let now = Date.now
            // At most a day ahead; for a later date the timer is set again then.
            let next = date.map { min($0, now + 86_400) }
            // A timer of the same date is already set, to within a millisecond.
            if let old = state.deadline, let next, old > now,
                abs(old.timeIntervalSince(next)) < 0.001
            {
                return
            }
            if next == nil, state.deadline == nil { return }
            state.deadline = next
            guard let next else {
                state.wallSource.schedule(wallDeadline: .distantFuture)
                state.monotonicSource.schedule(deadline: .distantFuture)
                return
            }
            let wait = max(next.timeIntervalSince(now), 0)
            let leeway = DispatchTimeInterval.milliseconds(wait > 10 ? 500 : 1)
            state.wallSource.schedule(wallDeadline: .now() + wait, leeway: leeway)
            state.monotonicSource.schedule(deadline: .now() + wait, leeway: leeway)
        }
    }
}
