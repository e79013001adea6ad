import Glibc
import Synchronization

/// Ends a sandboxed program at any time, from any thread, and one that starts later.
public final class KillSwitch: Sendable {
    private struct State {
        var supervisor: pid_t?
        var wasPulled = false
    }

    private let state = Mutex(State())

    /// Creates a switch for a process that has not started.
    public init() {}

    /// Has the processes killed that it is armed for now, or will be.
    public func pull() {
        state.withLock { state in
            state.wasPulled = true
            // A supervisor that was not reaped keeps its number: no other process can be hit.
            if let supervisor = state.supervisor { _ = kill(supervisor, SIGTERM) }
        }
    }

    /// Whether it was pulled.
    public var wasPulled: Bool { state.withLock { $0.wasPulled } }

    /// Arms the switch for a program, which is killed at once if the switch was pulled before.
    ///
    /// - Parameter supervisor: The process that `stage_start_sandboxed` returned.
    func arm(_ supervisor: pid_t) {
        state.withLock { state in
            state.supervisor = supervisor
            if state.wasPulled { _ = kill(supervisor, SIGTERM) }
        }
    }

    /// Forgets the program: its supervisor is about to be reaped.
    func disarm() { state.withLock { $0.supervisor = nil } }
}
