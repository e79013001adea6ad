import Glibc
import Synchronization

/// Ends a process group at any time, from any thread, and the group of a process that starts later.
public final class KillSwitch: Sendable {
    private struct State {
        var group: pid_t?
        var wasPulled = false
    }

    private let state = Mutex(State())

    /// Creates a switch for a process that has not started.
    public init() {}

    /// Kills the processes that it is armed for now, or will be.
    public func pull() {
        state.withLock { state in
            state.wasPulled = true
            // A leader that was not reaped keeps its number: no other group can be hit.
            if let group = state.group { _ = kill(-group, SIGKILL) }
        }
    }

    /// Whether it was pulled.
    public var wasPulled: Bool { state.withLock { $0.wasPulled } }

    /// Arms the switch for a group, which is killed at once if it was pulled before.
    func arm(_ group: pid_t) {
        state.withLock { state in
            state.group = group
            if state.wasPulled { _ = kill(-group, SIGKILL) }
        }
    }

    /// Forgets the group: its leader is about to be reaped.
    func disarm() { state.withLock { $0.group = nil } }
}
