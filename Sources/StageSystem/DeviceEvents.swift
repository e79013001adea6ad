import CLinux
import Glibc
public import SystemPackage

/// What the kernel says of devices that come, go and change.
///
/// There is nothing to hear in a container, whose network namespace the kernel does not address.
@safe public struct DeviceEvents: ~Copyable, Sendable {
    /// What poll(2) has to look at, owned by this value.
    public let descriptor: FileDescriptor

    /// Larger than any message: the kernel's buffer for one has 2 KiB.
    private static let maximumLength = 8 << 10

    /// Begins to listen.
    ///
    /// - Throws: ``FileError`` if the system does not allow that, as sandboxes do not.
    public init() throws(FileError) {
        let socket = try Directory.attempt("open", "kobject-uevent") { stage_device_events() }
        descriptor = FileDescriptor(rawValue: socket)
    }

    deinit {
        // What was not read is of no use to anybody.
        try? descriptor.close()
    }

    /// Takes in all messages that are there, and returns whether one was of devices of the class.
    ///
    /// Messages that were lost may have been of any class, so they count.
    public func takeAll(of subsystem: String) -> Bool {
        let wanted = Array("SUBSYSTEM=\(subsystem)".utf8)
        var bytes = [UInt8](repeating: 0, count: Self.maximumLength)
        var isAffected = false
        while true {
            let count = unsafe stage_receive_device_event(
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
            // ENOBUFS: there were more than the kernel keeps.
            default: return true
            }
        }
    }

    /// The parts of a message, each of which ends with a zero.
    static func fields(_ message: ArraySlice<UInt8>) -> [[UInt8]] {
        message.split(separator: 0).map(Array.init)
    }
}
