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
    /// How many there are is not handed on: zeros at the end are either what was not written or the group
    /// of root, which is not taken for granted.
    var groups: [UInt32] {
        var count = Self.capacity
        while count > 0, numbers[count - 1] == 0 { count -= 1 }
        return (0..<count).map { numbers[$0] }
    }
}

/// The process that connected to a Unix socket, which keeps its number from meaning another one unseen
/// (`SO_PEERPIDFD`, Linux 6.5).
final class PeerProcess: Sendable {
    private let descriptor: SystemPackage.FileDescriptor

    /// Asks the kernel for the process at the other end; `nil` if it cannot tell.
    init?(of channel: any Channel) async {
        guard let provider = channel as? any SocketOptionProvider,
            // Kernels before 6.5, and processes that have ended.
            let file: CInt = try? await provider.unsafeGetSocketOption(
                level: .socket,
                name: .init(rawValue: Self.option)
            ).get()
        else { return nil }
        descriptor = SystemPackage.FileDescriptor(rawValue: file)
    }

    deinit {
        // Nothing was written to it.
        try? descriptor.close()
    }

    /// Whether the process has not ended yet, so that its number is still its own.
    var isAlive: Bool {
        var event = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
        // Readable once the process has ended (pidfd_open(2)).
        return unsafe Glibc.poll(&event, 1, 0) == 0
    }

    /// `SO_PEERPIDFD`.
    private static let option: CInt = 77
}
