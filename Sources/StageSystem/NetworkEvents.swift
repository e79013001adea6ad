import CLinux
import Glibc
package import SystemPackage

/// Messages of the kernel about links, addresses and routes of this process's network namespace (rtnetlink(7)).
@safe package struct NetworkEvents: ~Copyable, Sendable {
    /// The descriptor for poll(2), owned by this value.
    package let descriptor: FileDescriptor

    /// The length of the receive buffer in bytes; the kernel's multicast messages are shorter.
    private static let maximumLength = 32 << 10
    /// The number of datagrams after which ``takePending()`` returns.
    private static let datagramsPerCall = 256

    /// Opens the socket that receives the messages.
    ///
    /// - Throws: ``FileError`` if the system refuses, for example in a sandbox.
    package init() throws(FileError) {
        let socket = try Directory.attempt("open", at: Self.path) { stage_network_events() }
        descriptor = FileDescriptor(rawValue: socket)
    }

    deinit {
        // Unread events are not needed any more.
        try? descriptor.close()
    }

    /// Reads pending messages; the descriptor stays readable while there are more.
    ///
    /// - Throws: ``FileError`` if the socket cannot be read any more.
    package func takePending() throws(FileError) -> [NetworkEvent] {
        var bytes = [UInt8](repeating: 0, count: Self.maximumLength)
        var events: [NetworkEvent] = []
        for _ in 0..<Self.datagramsPerCall {
            let count = unsafe stage_receive_kernel_message(
                descriptor.rawValue,
                &bytes,
                bytes.count
            )
            guard count < 0 else {
                events += NetworkEvent.events(in: bytes[..<count])
                continue
            }
            let reason = errno
            switch reason {
            case EINTR, EPROTO: continue
            case EAGAIN: return events
            // The kernel has dropped messages.
            case ENOBUFS: events.append(.lost)
            default: throw FileError("read", path: Self.path, errno: Errno(rawValue: reason))
            }
        }
        return events
    }

    private static let path: FilePath = "rtnetlink"
}
