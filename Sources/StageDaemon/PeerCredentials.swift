import Glibc
import NIOCore
import StageControl

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
    static func of(_ channel: any Channel) async throws -> PeerCredentials {
        guard let provider = channel as? any SocketOptionProvider else {
            throw ControlRefusal(.forbidden, "the client is not on this machine")
        }
        let peer: Credentials = try await provider.unsafeGetSocketOption(
            level: .socket,
            name: .init(rawValue: Credentials.option)
        ).get()
        return PeerCredentials(
            process: peer.process,
            user: peer.user,
            group: peer.group,
            groups: [peer.group] + (await groups(of: provider)).filter { $0 != peer.group }
        )
    }

    /// The supplementary groups; none where there are more than ``GroupList`` holds.
    private static func groups(of provider: any SocketOptionProvider) async -> [UInt32] {
        let list: GroupList
        do {
            list = try await provider.unsafeGetSocketOption(
                level: .socket,
                name: .init(rawValue: GroupList.option)
            ).get()
        } catch {
            // Fewer rights than the client has, never more.
            return []
        }
        // The kernel keeps them sorted, and how many there are is not handed on: zeros at the end are
        // either what was not written or the group of root, which is not taken for granted.
        var count = GroupList.capacity
        while count > 0, list.numbers[count - 1] == 0 { count -= 1 }
        return (0..<count).map { list.numbers[$0] }
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
}
