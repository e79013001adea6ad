import CLinux
import Glibc

/// A child process that SIGKILL does not end, for example since it waits for a file system in user space that does
/// not answer (fuse(4)).
package struct UnkillableProcess: Equatable, Sendable {
    /// The number of the process, which is valid until the process is reaped.
    package let id: CInt

    /// Creates it from a child of this process that no other code waits for.
    init(_ id: CInt) { self.id = id }

    /// Waits until the process has ended, kills the rest of its group, and reaps it.
    ///
    /// Returns early if the task is cancelled. The process then stays a child of this one.
    package func waitForEnd() async {
        while stage_has_ended(id) == 0 {
            // Cancelled: the caller does not wait for it any more.
            guard (try? await Task.sleep(for: .seconds(1))) != nil else { return }
        }
        stage_signal_child(id, 1, SIGKILL)
        _ = ChildProcess.Ending(of: id, isKept: false)
    }
}
