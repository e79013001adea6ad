import CLinux
import Glibc
public import SystemPackage

/// An event that wakes a thread from poll(2), from any thread (eventfd(2)).
///
/// Raised several times before the thread polls, it wakes the thread once.
public final class WakeSignal: Sendable {
    /// The descriptor for poll(2): readable while the signal is raised.
    public let descriptor: FileDescriptor

    /// Creates a signal that is not raised.
    ///
    /// - Throws: ``FileError`` if the process has reached its limit of open files.
    public init() throws(FileError) {
        let file = try Directory.attempt("open", at: "eventfd") { stage_counter() }
        descriptor = FileDescriptor(rawValue: file)
    }

    deinit {
        // close(2) cannot lose data: it is a counter.
        try? descriptor.close()
    }

    /// Raises the signal without blocking.
    public func raise() {
        // Fails only if the counter is full: then the signal is raised already.
        _ = eventfd_write(descriptor.rawValue, 1)
    }

    /// Clears the signal.
    public func lower() {
        var count: eventfd_t = 0
        // Fails if the signal is not raised.
        unsafe _ = eventfd_read(descriptor.rawValue, &count)
    }
}
