import FoundationEssentials
import Glibc
import StageSystem

/// Tells the service manager how the daemon is (sd_notify(3)), where there is one that listens.
public struct ServiceNotifier: Sendable {
    private let path: String?
    /// How often the service manager wants to hear that the daemon is alive.
    public let watchdogInterval: Duration?

    /// Reads from the environment where the service manager listens (`NOTIFY_SOCKET`,
    /// `WATCHDOG_USEC`, `WATCHDOG_PID`).
    public init(environment: [String: String], process: Int32) {
        path = environment["NOTIFY_SOCKET"].flatMap { $0.isEmpty ? nil : $0 }
        let isMeant = environment["WATCHDOG_PID"].map { Int32($0) == process } ?? true
        let limit = environment["WATCHDOG_USEC"].flatMap { Int64($0) }
        watchdogInterval = isMeant ? limit.map { .microseconds($0 / 2) } : nil
    }

    /// Says something, such as `READY=1`; nobody listening is no error.
    public func notify(_ text: String) {
        guard let path else { return }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        var bytes = Array(path.utf8)
        // An abstract address begins with a zero.
        if bytes.first == UInt8(ascii: "@") { bytes[0] = 0 }
        let capacity = MemoryLayout.size(ofValue: address.sun_path)
        guard bytes.count < capacity else { return }
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: bytes) }
        let socket = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        guard socket >= 0 else { return }
        defer { close(socket) }
        let length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count)
        // What cannot be said cannot be said: the daemon works all the same.
        unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe _ = sendto(
                    socket,
                    text,
                    text.utf8.count,
                    CInt(MSG_NOSIGNAL),
                    address,
                    length
                )
            }
        }
    }

    /// The monotonic time in microseconds, which a message of a reload must have.
    static var now: Int64 {
        var time = timespec()
        guard unsafe clock_gettime(CLOCK_MONOTONIC, &time) == 0 else { return 0 }
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1000
    }

    /// Says that the daemon is alive, as often as that is wanted, until the task is cancelled.
    func keepAlive(_ isAlive: () async -> Void) async {
        guard let watchdogInterval else { return }
        while (try? await Task.sleep(for: watchdogInterval)) != nil {
            await isAlive()
            notify("WATCHDOG=1")
        }
    }
}
