import CLinux
import Glibc
import Synchronization
public import SystemPackage

/// A child process, killed and reaped when the last reference goes.
public final class ChildProcess: Sendable {
    /// How a process ended.
    public enum Ending: Hashable, Sendable, Codable {
        /// It exited with this status.
        case exited(Int)
        /// This signal ended it.
        case signalled(Int)
    }

    private struct State {
        var pid: pid_t
        var ending: Ending?
    }

    private let state: Mutex<State>

    /// The descriptor that is the child's end of the socket, in the child.
    public static let channel = FileDescriptor(rawValue: 3)

    /// Starts `executable` with `arguments`, the first of which is its name.
    ///
    /// It inherits standard error and one socket, its descriptor 3, and nothing else; its environment is
    /// empty.
    public init(
        executable: FilePath,
        arguments: [String],
        channel: MessageSocket
    ) throws(FileError) {
        var pid = pid_t()
        var strings: [UnsafeMutablePointer<CChar>?] = unsafe arguments.map { unsafe strdup($0) }
        unsafe strings.append(nil)
        defer { for index in unsafe strings.indices { unsafe free(strings[index]) } }
        let status = unsafe executable.withPlatformString {
            unsafe stage_spawn(&pid, $0, strings, channel.descriptor.rawValue)
        }
        guard status == 0 else {
            throw FileError("start", executable, Errno(rawValue: status))
        }
        state = Mutex(State(pid: pid, ending: nil))
    }

    /// Takes over a child of this process that was not waited for.
    public init(adopting identifier: CInt) {
        state = Mutex(State(pid: identifier, ending: nil))
    }

    deinit {
        kill()
        _ = waitForEnd()
    }

    /// The number of the process.
    public var identifier: Int { state.withLock { Int($0.pid) } }

    /// Kills the process, if it still runs.
    public func kill() {
        state.withLock { state in
            // A process that was not reaped keeps its number: no other one can be hit.
            if state.ending == nil { _ = Glibc.kill(state.pid, SIGKILL) }
        }
    }

    /// Waits until the process has ended, and returns how.
    ///
    /// A thread that calls ``kill()`` meanwhile waits too: call this only when the process is ending.
    public func waitForEnd() -> Ending {
        state.withLock { state in
            if let ending = state.ending { return ending }
            var status: CInt = 0
            while unsafe waitpid(state.pid, &status, 0) < 0, errno == EINTR {}
            // The macros of wait(2) are not importable: the low seven bits are the signal.
            let signal = Int(status & 0x7F)
            let ending: Ending = signal != 0 ? .signalled(signal) : .exited(Int(status >> 8 & 0xFF))
            state.ending = ending
            return ending
        }
    }
}
