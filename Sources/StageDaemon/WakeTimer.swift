import Dispatch
import Foundation
import Synchronization

/// Says once that a time has come; nothing wakes up before.
///
/// By the wall clock, which the times that people and servers name are of; when somebody sets it, the
/// kernel tells.
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

    /// Sets when to ring next; `nil` stands for never.
    func set(_ date: Date?) {
        state.withLock { state in
            let now = Date.now
            // A day at most: farther than that the clock is looked at again.
            let next = date.map { min($0, now + 86_400) }
            // One that has passed has rung, or is about to; one that is far may come a bit early.
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
