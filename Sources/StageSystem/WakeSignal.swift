import CLinux
import Glibc
package import SystemPackage

/// An event that wakes a thread from poll(2), from any thread (eventfd(2)).
///
/// Raised several times before the thread polls, it wakes the thread once.
package final class WakeSignal: Sendable {
    /// The descriptor for poll(2): readable while the signal is raised.
    package let descriptor: FileDescriptor

    /// Creates a signal that is not raised.
    ///
    /// - Throws: ``FileError`` if the process has reached its limit of open files.
    package init() throws(FileError) {
        let file = try Directory.attempt("open", at: "eventfd") { stage_counter() }
        descriptor = FileDescriptor(rawValue: file)
    }

    deinit {
        // close(2) cannot lose data: it is a counter.
        try? descriptor.close()
    }

    /// Raises the signal without blocking.
    package func raise() {
        // Fails only if the counter is full: then the signal is raised already.
        _ = eventfd_write(descriptor.rawValue, 1)
    }

    /// Clears the signal.
    package func lower() {
        var count: eventfd_t = 0
        // Fails if the signal is not raised.
        unsafe _ = eventfd_read(descriptor.rawValue, &count)
    }
}
