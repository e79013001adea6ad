import CLinux
import Glibc
import Synchronization
public import SystemPackage

/// A child process, killed and reaped when the last reference is released, unless it was abandoned.
public final class ChildProcess: Sendable {
    /// The way in which a process ended.
    public enum Ending: Hashable, Sendable, Codable {
        /// The process exited with this status.
        case exited(Int)
        /// This signal killed the process.
        case signalled(Int)
        /// The process has ended, and the kernel does not tell its exit status: other code has reaped it, or this
        /// process ignores `SIGCHLD`, so that the kernel reaps its children (wait(2)).
        case unknown
    }

    private struct State {
        var pid: pid_t
        var ending: Ending?
        var isAbandoned = false
    }

    private let state: Mutex<State>

    /// The descriptor of the socket in the child process.
    public static let channel = FileDescriptor(rawValue: 3)

    /// Starts `executable` with `arguments`, the first of which is its name.
    ///
    /// The child inherits standard error and one socket, as descriptor 3, and no other descriptor; its
    /// environment is empty.
    public init(
        executable: FilePath,
        arguments: [String],
        channel: MessageSocket
    ) throws(FileError) {
        var pid = pid_t()
        let strings = CStrings(arguments)
        let status = unsafe executable.withPlatformString {
            unsafe stage_spawn(&pid, $0, strings.pointers, channel.descriptor.rawValue)
        }
        guard status == 0 else {
            throw FileError("start", path: executable, errno: Errno(rawValue: status))
        }
        state = Mutex(State(pid: pid, ending: nil))
    }

    /// Takes ownership of a child of this process that no other code waits for.
    public init(adopting identifier: CInt) {
        state = Mutex(State(pid: identifier, ending: nil))
    }

    deinit {
        if state.withLock({ $0.isAbandoned }) { return }
        kill()
        _ = waitForEnd()
    }

    /// Kills the process if it still runs.
    public func kill() {
        state.withLock { state in
            // A process that is not reaped yet keeps its process id, so the signal cannot reach another
            // process.
            if state.ending == nil { stage_signal_child(state.pid, 0, SIGKILL) }
        }
    }

    /// Waits until the process has ended, and returns its exit status or signal; other threads may call ``kill()``
    /// meanwhile.
    public func waitForEnd() -> Ending {
        let (process, ending) = state.withLock { ($0.pid, $0.ending) }
        if let ending { return ending }
        // The process is not reaped yet, so that its ID is valid for calls that hold the lock.
        _ = Ending(of: process, isKept: true)
        return reap()
    }

    /// Reaps the process, which has ended, unless that was done before.
    private func reap() -> Ending {
        state.withLock { state in
            if let ending = state.ending { return ending }
            let ending = Ending(of: state.pid, isKept: false)
            state.ending = ending
            return ending
        }
    }

    /// Waits until the process has ended, at most for `time`; the time in which the machine is suspended does not count.
    ///
    /// - Returns: The exit status or signal, or `nil` if the process still runs.
    public func waitForEnd(within time: Duration) -> Ending? {
        let (process, ending) = state.withLock { ($0.pid, $0.ending) }
        if let ending { return ending }
        let deadline = SuspendingClock.now + time.sleepable
        let end = stage_open_process(process)
        defer { if end >= 0 { close(end) } }
        while stage_has_ended(process) == 0 {
            let left = deadline - .now
            guard left > .zero else { return nil }
            var pollRequest = pollfd(fd: end, events: Int16(POLLIN), revents: 0)
            // Polls for the end where the kernel has no pidfd.
            let pause = end >= 0 ? left : min(left, .milliseconds(20))
            unsafe _ = poll(&pollRequest, 1, pause.wholeMilliseconds)
        }
        return reap()
    }

    /// Stops waiting for the process, for example because it runs as another user and cannot be killed.
    public func abandon() { state.withLock { $0.isAbandoned = true } }

    /// Kills the process if it still runs, and all its descendants.
    ///
    /// Stops each process first, so that it cannot start further ones meanwhile. Does not find descendants
    /// whose parent has ended, nor any descendant where the kernel does not list children.
    public func killTree() {
        state.withLock { state in
            guard state.ending == nil, stage_has_ended(state.pid) >= 0 else { return }
            ProcessTree(stopping: state.pid).kill()
        }
    }
}
