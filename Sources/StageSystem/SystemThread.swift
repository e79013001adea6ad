import CLinux
import Glibc
import SystemPackage

/// A thread outside the cooperative pool, for work that blocks or that confines itself.
@safe package struct SystemThread: ~Copyable {
    private let thread: pthread_t

    private final class Start {
        let name: String
        let body: @Sendable () -> Void

        init(name: String, body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }

    /// Starts a thread that runs `body`; it inherits the confinement of the calling thread.
    ///
    /// Tools show at most 15 bytes of its name.
    ///
    /// - Throws: ``FileError`` if the system refuses a thread.
    package init(name: String, body: @escaping @Sendable () -> Void) throws(FileError) {
        let start = unsafe Unmanaged.passRetained(Start(name: name, body: body))
        var thread = pthread_t()
        let status = unsafe pthread_create(
            &thread,
            nil,
            { argument in
                guard let argument = unsafe argument else { return nil }
                let start = unsafe Unmanaged<Start>.fromOpaque(argument).takeRetainedValue()
                // The name helps readers of process lists; an error is ignored.
                unsafe _ = stage_name_thread(start.name)
                start.body()
                return nil
            },
            start.toOpaque()
        )
        guard status == 0 else {
            unsafe start.release()
            throw FileError("start", path: FilePath(name), errno: Errno(rawValue: status))
        }
        self.thread = thread
    }

    /// Waits until the thread has ended.
    package consuming func join() {
        let status = pthread_join(thread, nil)
        precondition(status == 0, "a thread was joined twice")
    }

    /// Releases the thread, which then ends by itself.
    package consuming func detach() {
        let status = pthread_detach(thread)
        precondition(status == 0, "a thread was detached twice")
    }

    /// Gives the calling thread, and the threads that it creates, a umask of their own that is zero; returns
    /// whether the system allowed it.
    ///
    /// The umask of the process does not change.
    package static func clearOwnMask() -> Bool {
        guard stage_unshare_fs() == 0 else { return false }
        umask(0)
        return true
    }
}
