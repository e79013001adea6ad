import Glibc
import NIOCore
import StageControl
import StageSystem
import SystemPackage

/// Credentials of the process that connected to a Unix socket, as the kernel kept them then
/// (`SO_PEERCRED` and `SO_PEERGROUPS`, unix(7)).
struct PeerCredentials: Sendable {
    /// The number of the process.
    var process: Int32
    /// The time when the connection was accepted: at that moment or before, the process had the number.
    var accepted: BootTime
    /// The effective user.
    var user: UInt32
    /// The effective group.
    var group: UInt32
    /// All groups of the process, ``group`` first.
    ///
    /// Those of the process, not of the user: one that has given groups up does not get them back.
    var groups: [UInt32]

    /// Asks the kernel for the credentials of the other end.
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

    /// The supplementary groups; none where there are more than ``GroupList`` holds.
    private static func groups(
        of provider: any SocketOptionProvider
    ) -> EventLoopFuture<[UInt32]> {
        let list: EventLoopFuture<GroupList> = provider.unsafeGetSocketOption(
            level: .socket,
            name: .init(rawValue: GroupList.option)
        )
        // Fewer rights than the client has, never more.
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

/// The answer to `SO_PEERGROUPS`.
private struct GroupList: Sendable {
    static let capacity = 1024
    /// `SO_PEERGROUPS`.
    static let option: CInt = 59

    var numbers: InlineArray<1024, UInt32>

    /// The groups, in the kernel's order, which is ascending.
    ///
    /// The option's length is not handed on: zeros at the end are either what was not written or the group
    /// of root, which is not taken for granted.
    var groups: [UInt32] {
        var count = Self.capacity
        while count > 0, numbers[count - 1] == 0 { count -= 1 }
        return (0..<count).map { numbers[$0] }
    }
}

/// The process that connected to a Unix socket, told from a later one that has its number.
///
/// The kernel hands the process itself out (`SO_PEERPIDFD`, Linux 6.5). An older one does not: there, a
/// process counts as the one that connected if it was started before the connection was accepted.
final class PeerProcess: Sendable {
    private enum Identity {
        case descriptor(SystemPackage.FileDescriptor)
        case number(Int32, accepted: BootTime)
        case ended
    }

    private let identity: Identity

    /// Asks the kernel for the process at the other end.
    init(of channel: any Channel, _ credentials: PeerCredentials) async {
        identity = await Self.identity(of: channel, credentials)
    }

    private static func identity(
        of channel: any Channel,
        _ credentials: PeerCredentials
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
            // The kernel could hand it out, and has none any more.
            return .ended
        }
    }

    deinit {
        // Nothing was written to it.
        if case .descriptor(let file) = identity { try? file.close() }
    }

    /// Whether the number of the process still means the process that connected.
    ///
    /// Before Linux 6.5 this reads a file of `/proc`.
    var hasItsNumber: Bool {
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

/// A time since the machine was started, in the ticks that the kernel dates processes by.
struct BootTime: Comparable, Sendable {
    private let ticks: UInt64

    /// The present.
    static var now: BootTime {
        var time = timespec()
        unsafe clock_gettime(CLOCK_BOOTTIME, &time)
        let rate = UInt64(sysconf(CInt(_SC_CLK_TCK)))
        let fraction = UInt64(time.tv_nsec) * rate / 1_000_000_000
        return BootTime(ticks: UInt64(time.tv_sec) * rate + fraction)
    }

    private init(ticks: UInt64) { self.ticks = ticks }

    /// Reads when a process was started (proc_pid_stat(5)); `nil` if there is none of that number.
    init?(ofStart process: Int32) {
        let path = FilePath("/proc/\(process)/stat")
        // A process that has ended is not told apart from one that is hidden.
        guard let bytes = try? File.open(readingRegular: path).readAll(limit: 1 << 12),
            // The second field is a name, and may hold anything.
            let end = bytes.lastIndex(of: UInt8(ascii: ")"))
        else { return nil }
        let fields = bytes[end...].split(separator: UInt8(ascii: " "))
        guard fields.count > 20, let ticks = UInt64(String(decoding: fields[20], as: UTF8.self))
        else { return nil }
        self.ticks = ticks
    }

    static func < (left: Self, right: Self) -> Bool { left.ticks < right.ticks }
}
