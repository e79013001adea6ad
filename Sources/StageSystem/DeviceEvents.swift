import CLinux
import Glibc
package import SystemPackage

/// Events of the kernel about devices that appear, disappear and change.
///
/// Containers receive none, because the kernel does not send these events to their network namespaces.
@safe package struct DeviceEvents: ~Copyable, Sendable {
    /// The descriptor for poll(2), owned by this value.
    package let descriptor: FileDescriptor

    /// The length of the receive buffer in bytes; the kernel limits a message to 2 KiB.
    private static let maximumLength = 8 << 10

    /// Opens the socket that receives device events.
    ///
    /// - Throws: ``FileError`` if the system refuses, for example in a sandbox.
    package init() throws(FileError) {
        let socket = try Directory.attempt("open", at: "kobject-uevent") { stage_device_events() }
        descriptor = FileDescriptor(rawValue: socket)
    }

    deinit {
        // Unread events are not needed any more.
        try? descriptor.close()
    }

    /// Reads all pending messages, and returns whether one concerns a device of `subsystem`.
    ///
    /// Returns `true` if the kernel has dropped messages, because one of them may have concerned the
    /// subsystem.
    package func takeAll(of subsystem: String) -> Bool {
        let wanted = Array("SUBSYSTEM=\(subsystem)".utf8)
        var bytes = [UInt8](repeating: 0, count: Self.maximumLength)
        var isAffected = false
        while true {
            let count = unsafe stage_receive_kernel_message(
                descriptor.rawValue,
                &bytes,
                bytes.count
            )
            guard count < 0 else {
                isAffected = isAffected || Self.fields(bytes[..<count]).contains { $0 == wanted }
                continue
            }
            switch errno {
            case EINTR, EPROTO: continue
            case EAGAIN: return isAffected
            // ENOBUFS: the kernel has dropped messages.
            default: return true
            }
        }
    }

    /// Splits a message into its fields, each of which ends with a zero byte.
    static func fields(_ message: ArraySlice<UInt8>) -> [[UInt8]] {
        message.split(separator: 0).map(Array.init)
    }
}
