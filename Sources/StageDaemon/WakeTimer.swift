import Dispatch
import Foundation
import Synchronization

/// Timer for a single date, which causes no wake-ups before it.
///
/// Uses the wall clock, since dates of people and servers refer to it; the kernel reports when the clock is set.
final class WakeTimer: Sendable {
    private let state: Mutex<State>

    private struct State {
        let source: any DispatchSourceTimer
        var deadline: Date?
    }

    init(_ ring: @escaping @Sendable () -> Void) {
        let source = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "stage.timer"))
        source.setEventHandler { ring() }
        source.activate()
        state = Mutex(State(source: source))
    }

    deinit { state.withLock { $0.source.cancel() } }

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
                state.source.schedule(wallDeadline: .distantFuture)
                return
            }
            let wait = max(next.timeIntervalSince(now), 0)
            let leeway = DispatchTimeInterval.milliseconds(wait > 10 ? 500 : 1)
            state.source.schedule(wallDeadline: .now() + wait, leeway: leeway)
        }
    }
}
