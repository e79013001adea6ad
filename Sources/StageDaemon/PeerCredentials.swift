import Glibc
import NIOCore
import StageControl
import StageSystem
import SystemPackage

/// Credentials of the process that connected to a Unix socket, as of the connect(2) call (`SO_PEERCRED` and
/// `SO_PEERGROUPS`, unix(7)).
struct PeerCredentials: Sendable {
    /// Process identifier.
    var process: Int32
    /// Time after the connection was accepted.
    ///
    /// The process had its identifier no later than this.
    var accepted: BootTime
    /// Effective user.
    var user: UInt32
    /// Effective group.
    var group: UInt32
    /// All groups of the process, ``group`` first.
    ///
    /// These are the groups of the process, not those of the user account: a process that has dropped groups does not
    /// regain them.
    var groups: [UInt32]

    /// Reads the credentials of a channel's peer.
    static func read(of channel: any Channel) -> EventLoopFuture<PeerCredentials> {
        guard let provider = channel as? any SocketOptionProvider else {
            return channel.eventLoop.makeFailedFuture(ChannelError.operationUnsupported)
        }
        let credentials: EventLoopFuture<Credentials> = provider.unsafeGetSocketOption(
            level: .socket,
            name: .init(rawValue: Credentials.option)
        )
        return credentials.and(groups(of: provider)).map { peer, groups in
            PeerCredentials(
                process: peer.process,
                accepted: .now,
                user: peer.user,
                group: peer.group,
                groups: [peer.group] + groups.filter { $0 != peer.group }
            )
        }
    }

    /// Returns the supplementary groups; none if there are more than ``GroupList`` holds.
    private static func groups(
        of provider: any SocketOptionProvider
    ) -> EventLoopFuture<[UInt32]> {
        let list: EventLoopFuture<GroupList> = provider.unsafeGetSocketOption(
            level: .socket,
            name: .init(rawValue: GroupList.option)
        )
        // The client then has fewer rights than its process, never more.
        return list.map(\.groups).recover { _ in [] }
    }
}

/// `struct ucred`.
private struct Credentials: Sendable {
    var process: Int32
    var user: UInt32
    var group: UInt32

    /// `SO_PEERCRED`.
    static let option: CInt = 17
}

/// Result of `SO_PEERGROUPS`.
private struct GroupList: Sendable {
    static let capacity = 1024
    /// `SO_PEERGROUPS`.
    static let option: CInt = 59

    var numbers: InlineArray<1024, UInt32>

    /// The groups, in the kernel's ascending order.
    ///
    /// The length of the result is not available. Zeros at the end are unused or the group of root; both are left
    /// out.
    var groups: [UInt32] {
        var count = Self.capacity
        while count > 0, numbers[count - 1] == 0 { count -= 1 }
        return (0..<count).map { numbers[$0] }
    }
}

/// Process that connected to a Unix socket, as opposed to a later process with the same identifier.
///
/// Uses the process's descriptor from the kernel (`SO_PEERPIDFD`, Linux 6.5). On older kernels, a process counts as
/// the peer if it started before the connection was accepted.
final class PeerProcess: Sendable {
    private enum Identity {
        case descriptor(SystemPackage.FileDescriptor)
        case number(Int32, accepted: BootTime)
        case ended
    }

    private let identity: Identity

    /// Gets the process at the other end from the kernel.
    init(of channel: any Channel, credentials: PeerCredentials) async {
        identity = await Self.identity(of: channel, credentials: credentials)
    }

    private static func identity(
        of channel: any Channel,
        credentials: PeerCredentials
    ) async -> Identity {
        guard let provider = channel as? any SocketOptionProvider else { return .ended }
        do {
            let file: CInt = try await provider.unsafeGetSocketOption(
                level: .socket,
                name: .init(rawValue: option)
            ).get()
            return .descriptor(SystemPackage.FileDescriptor(rawValue: file))
        } catch let error as IOError where error.errnoCode == ENOPROTOOPT {
            return .number(credentials.process, accepted: credentials.accepted)
        } catch {
            // The kernel supports the option, but the process has ended.
            return .ended
        }
    }

    deinit {
        // Closing a descriptor that was never written to loses no data.
        if case .descriptor(let file) = identity { try? file.close() }
    }

    /// Returns whether the process identifier still belongs to the peer.
    ///
    /// Before Linux 6.5 this reads a file of `/proc`.
    var stillHasProcessID: Bool {
        switch identity {
        case .descriptor(let file):
            var event = pollfd(fd: file.rawValue, events: Int16(POLLIN), revents: 0)
            // Readable once the process has ended (pidfd_open(2)).
            return unsafe Glibc.poll(&event, 1, 0) == 0
        case .number(let number, let accepted):
            return BootTime(ofStart: number).map { $0 <= accepted } ?? false
        case .ended: return false
        }
    }

    /// `SO_PEERPIDFD`.
    private static let option: CInt = 77
}

/// Time since boot, in the clock ticks of process start times in `/proc`.
struct BootTime: Comparable, Sendable {
    private let ticks: UInt64

    /// Current time.
    static var now: BootTime {
        var time = timespec()
        unsafe clock_gettime(CLOCK_BOOTTIME, &time)
        let rate = UInt64(sysconf(CInt(_SC_CLK_TCK)))
        let fraction = UInt64(time.tv_nsec) * rate / 1_000_000_000
        return BootTime(ticks: UInt64(time.tv_sec) * rate + fraction)
    }

    private init(ticks: UInt64) { self.ticks = ticks }

    /// Reads the start time of a process (proc_pid_stat(5)); fails if there is no such process.
    init?(ofStart process: Int32) {
        let path = FilePath("/proc/\(process)/stat")
        // An ended process cannot be distinguished from a hidden one.
        guard let bytes = try? File.open(readingRegular: path).readAll(limit: 1 << 12),
            // The second field is the program's name in parentheses, and may contain any character.
            let end = bytes.lastIndex(of: UInt8(ascii: ")"))
        else { return nil }
        let fields = bytes[end...].split(separator: UInt8(ascii: " "))
        guard fields.count > 20, let ticks = UInt64(String(decoding: fields[20], as: UTF8.self))
        else { return nil }
        self.ticks = ticks
    }

    static func < (left: Self, right: Self) -> Bool { left.ticks < right.ticks }
}
