import CLinux
import Glibc
public import SystemPackage

/// What gets a thread out of poll(2), from whatever thread.
///
/// Raised any number of times before the thread looks, it wakes the thread once.
public final class WakeSignal: Sendable {
    /// What poll(2) has to look at: readable while the signal is raised.
    public let descriptor: FileDescriptor

    /// Makes a signal that is not raised.
    ///
    /// - Throws: ``FileError`` if the process may have no more open files.
    public init() throws(FileError) {
        let file = try Directory.attempt("open", "eventfd") { stage_counter() }
        descriptor = FileDescriptor(rawValue: file)
    }

    deinit {
        // A counter has nothing that close(2) could lose.
        try? descriptor.close()
    }

    /// Raises the signal, and waits for nobody.
    public func raise() {
        // It fails only when the counter is full, and then the signal is raised already.
        _ = eventfd_write(descriptor.rawValue, 1)
    }

    /// Takes the signal back.
    public func lower() {
        var count: eventfd_t = 0
        // It fails when the signal is not raised.
        unsafe _ = eventfd_read(descriptor.rawValue, &count)
    }
}
