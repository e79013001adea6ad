import CLinux
import Glibc
import Synchronization

/// Kills a sandboxed program at any time, from any thread, even if it starts later.
package final class KillSwitch: Sendable {
    private struct State {
        var supervisor: pid_t?
        var wasPulled = false
    }

    private let state = Mutex(State())

    /// Creates a switch for a process that has not started.
    package init() {}

    /// Kills the program for which the switch is armed, now or later.
    package func pull() {
        state.withLock { state in
            state.wasPulled = true
            // A supervisor that is not reaped yet keeps its process id, so the signal cannot reach another
            // process.
            if let supervisor = state.supervisor { stage_signal_child(supervisor, 0, SIGTERM) }
        }
    }

    /// Indicates whether ``pull()`` was called.
    package var wasPulled: Bool { state.withLock { $0.wasPulled } }

    /// Arms the switch for a program, and kills it at once if the switch was pulled before.
    ///
    /// - Parameter supervisor: The process id that `stage_start_sandboxed` returned.
    func arm(_ supervisor: pid_t) {
        state.withLock { state in
            state.supervisor = supervisor
            if state.wasPulled { stage_signal_child(supervisor, 0, SIGTERM) }
        }
    }

    /// Disarms the switch before the supervisor is reaped.
    func disarm() { state.withLock { $0.supervisor = nil } }
}
