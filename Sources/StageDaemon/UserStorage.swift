import FoundationEssentials
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Thread-safe accounting of the files kept for each user.
final class UserStorage: Sendable {
    private let root: Directory
    private let quota: Mutex<DiskQuota>

    /// Creates an account without files.
    init(root: Directory, configuration: DaemonConfiguration) {
        self.root = root
        quota = Mutex(DiskQuota(Self.limits(root: root, configuration: configuration)))
    }

    /// Applies the limits of another configuration.
    func configure(_ configuration: DaemonConfiguration) {
        let limits = Self.limits(root: root, configuration: configuration)
        quota.withLock { $0.limits = limits }
    }

    private static func limits(
        root: Directory,
        configuration: DaemonConfiguration
    ) -> DiskQuota.Limits {
        // Free space is read at each decision. A file system of unknown size imposes no limit of its own.
        let total = try? root.totalSpace()
        return DiskQuota.Limits(
            perUser: configuration.bytesPerUser?.rawValue,
            share: (total?.bytes ?? .max) / 4,
            exempt: UserIdentity.current.user,
            reserve: configuration.reserve.rawValue,
            files: total?.files.map { Int(clamping: $0 / 4) }
        )
    }

    /// Returns the maximum bytes of a user; `nil` for no limit.
    func limit(of user: UInt32) -> Int64? {
        quota.withLock { quota in
            quota.limits.perUser ?? (user == quota.limits.exempt ? nil : quota.limits.share)
        }
    }

    /// Sets the size of a file if the user's limits and the free space permit it.
    func grow(_ item: DiskQuota.Item, to bytes: Int64, of user: UInt32) -> DiskQuota.Verdict {
        // If the free space is unknown, assume that there is enough: writing will show it.
        let free = (try? root.freeSpace().bytes) ?? .max
        return quota.withLock { quota in
            guard free >= quota.limits.reserve else { return .full }
            return quota.grow(item, to: bytes, of: user, free: free)
        }
    }

    /// Throws the error that ends a transfer if its file may not grow to `size`.
    func permit(
        _ item: DiskQuota.Item,
        size: ByteCount,
        of user: UInt32,
        url: String
    ) throws(TransferError) {
        switch grow(item, to: size.rawValue, of: user) {
        case .granted: return
        case .later:
            throw .storage(FileError("grow", path: root.path, errno: DiskQuota.quotaExceeded))
        case .never(let limit): throw .unacceptable(url: url, .size(limit: ByteCount(limit)))
        case .full:
            if let total = try? root.totalSpace().bytes, size.rawValue > total {
                // Waiting for space would never end.
                let store = "store \(size.rawValue.quantity(of: "byte")) of '\(url)' in"
                throw .storage(FileError(store, path: root.path, errno: .fileTooLarge))
            }
            let free = (try? root.freeSpace().bytes) ?? 0
            guard free >= quota.withLock({ $0.limits.reserve }) else {
                throw .outOfSpace(root.path)
            }
            // Not `outOfSpace`, which would stop all transfers: smaller files still have space.
            throw .storage(FileError("grow", path: root.path, errno: .noSpace))
        }
    }

    /// Sets the size of a file that exists.
    func set(_ item: DiskQuota.Item, to bytes: Int64, of user: UInt32) {
        quota.withLock { $0.set(item, to: bytes, of: user) }
    }

    /// Counts a file under another key.
    func move(_ item: DiskQuota.Item, to other: DiskQuota.Item) {
        quota.withLock { $0.move(item, to: other) }
    }

    /// Stops counting files; returns the users whose bytes have decreased.
    func release(_ items: [DiskQuota.Item]) -> Set<UInt32> {
        quota.withLock { quota in Set(items.compactMap { quota.release($0) }) }
    }

    /// Returns the finished downloads of a user that are counted.
    func finishedDownloads(of user: UInt32) -> [Int64] {
        quota.withLock { $0.finishedDownloads(of: user) }
    }
}

extension DiskQuota {
    /// EDQUOT, which swift-system names only on Apple's platforms.
    static let quotaExceeded = Errno(rawValue: 122)
}
