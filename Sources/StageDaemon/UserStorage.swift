import FoundationEssentials
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// The bytes that are kept for users, shared by what receives them and what removes them.
final class UserStorage: Sendable {
    private let root: Directory
    private let held: Mutex<HeldBytes>

    /// Counts nothing yet.
    init(_ root: Directory, _ configuration: DaemonConfiguration) {
        self.root = root
        held = Mutex(HeldBytes(Self.limits(root, configuration)))
    }

    /// Works by another configuration from now on.
    func configure(_ configuration: DaemonConfiguration) {
        let limits = Self.limits(root, configuration)
        held.withLock { $0.limits = limits }
    }

    private static func limits(
        _ root: Directory,
        _ configuration: DaemonConfiguration
    ) -> HeldBytes.Limits {
        // What is free is looked at each time; a size that cannot be told limits nothing by itself.
        let total = try? root.totalSpace()
        return HeldBytes.Limits(
            perUser: configuration.bytesPerUser?.rawValue,
            share: (total?.bytes ?? .max) / 4,
            exempt: UserIdentity.current.user,
            reserve: configuration.reserve.rawValue,
            files: total?.files.map { Int(clamping: $0 / 4) }
        )
    }

    /// The bytes that one user may have in all; `nil` for any number.
    func limit(of user: UInt32) -> Int64? {
        held.withLock { held in
            held.limits.perUser ?? (user == held.limits.exempt ? nil : held.limits.share)
        }
    }

    /// Counts a file with so many bytes if it may have them.
    func grow(_ item: HeldBytes.Item, to bytes: Int64, of user: UInt32) -> HeldBytes.Verdict {
        // What cannot be told is found out by writing.
        let free = (try? root.freeSpace().bytes) ?? .max
        return held.withLock { held in
            guard free >= held.limits.reserve else { return .full }
            return held.grow(item, to: bytes, of: user, free: free)
        }
    }

    /// Throws what ends a transfer if its file may not have so many bytes.
    func permit(
        _ item: HeldBytes.Item,
        _ size: ByteCount,
        of user: UInt32,
        url: String
    ) throws(TransferError) {
        switch grow(item, to: size.rawValue, of: user) {
        case .granted: return
        case .later:
            throw .storage(FileError("grow", path: root.path, errno: HeldBytes.quotaExceeded))
        case .never(let limit): throw .unacceptable(url: url, .size(limit: ByteCount(limit)))
        case .full:
            let free = (try? root.freeSpace().bytes) ?? 0
            guard free >= held.withLock({ $0.limits.reserve }) else { throw .outOfSpace(root.path) }
            // Smaller files have room: no other transfer waits.
            throw .storage(FileError("grow", path: root.path, errno: .noSpace))
        }
    }

    /// Counts a file with so many bytes: it is there.
    func set(_ item: HeldBytes.Item, to bytes: Int64, of user: UInt32) {
        held.withLock { $0.set(item, to: bytes, of: user) }
    }

    /// Counts a file under another name.
    func move(_ item: HeldBytes.Item, to other: HeldBytes.Item) {
        held.withLock { $0.move(item, to: other) }
    }

    /// Counts files no longer, and returns the users who have fewer bytes now.
    func release(_ items: [HeldBytes.Item]) -> Set<UInt32> {
        held.withLock { held in Set(items.compactMap { held.release($0) }) }
    }

    /// The finished downloads of a user that count.
    func staged(of user: UInt32) -> [Int64] { held.withLock { $0.staged(of: user) } }
}

extension HeldBytes {
    /// EDQUOT, which swift-system names only on Apple's platforms.
    static let quotaExceeded = Errno(rawValue: 122)
}
