/// Counts the files and bytes that are kept for each user, and decides whether a file may grow.
///
/// Does no I/O: the free space is an argument. Sums cannot overflow, even for absurd sizes of users' files.
struct DiskQuota {
    /// File that is counted.
    enum Item: Hashable, Sendable {
        /// Partial download, or copy of a file to upload, by its name in the journal.
        case part(String)
        /// Finished download that was not moved away, by the identifier of its task.
        case finished(Int64)
    }

    /// Limits that apply to each user.
    struct Limits: Equatable, Sendable {
        /// Maximum bytes of every user; `nil` to apply ``share``.
        var perUser: Int64?
        /// Maximum bytes of each user who is not ``exempt``, a share of the file system.
        var share: Int64
        /// User who is limited by ``perUser`` only.
        var exempt: UInt32
        /// Bytes of the disk that stay free.
        var reserve: Int64
        /// Maximum number of files of each user who is not ``exempt``; `nil` for no limit.
        var files: Int?
    }

    /// Decision whether a file may grow.
    enum Verdict: Equatable, Sendable {
        case granted
        /// Denied until other files of the user are removed.
        case later
        /// Denied for good: the file alone exceeds the user's limit in bytes.
        case never(limit: Int64)
        /// Denied: only the reserve of the disk is left.
        case full
    }

    private struct File {
        var user: UInt32
        var bytes: Int64
    }

    var limits: Limits
    private var files: [Item: File] = [:]
    private var sums: [UInt32: Int64] = [:]
    private var counts: [UInt32: Int] = [:]

    init(_ limits: Limits) { self.limits = limits }

    /// Returns the bytes that are kept for a user.
    func sum(of user: UInt32) -> Int64 { sums[user] ?? 0 }

    /// Returns the finished downloads of a user that are counted.
    func finishedDownloads(of user: UInt32) -> [Int64] {
        files.compactMap { item, file in
            guard file.user == user, case .finished(let task) = item else { return nil }
            return task
        }
    }

    /// Sets the size of a file that exists, regardless of limits.
    mutating func set(_ item: Item, to bytes: Int64, of user: UInt32) {
        release(item)
        let bytes = min(max(bytes, 0), Self.most)
        files[item] = File(user: user, bytes: bytes)
        counts[user, default: 0] += 1
        sums[user] = min((sums[user] ?? 0) + bytes, Self.most * 1024)
    }

    /// Sets the size of a file if the limits permit it; `free` is the free space of the disk before the file grows.
    mutating func grow(
        _ item: Item,
        to bytes: Int64,
        of user: UInt32,
        free: Int64
    ) -> Verdict {
        if files[item] == nil, user != limits.exempt, let most = limits.files,
            counts[user] ?? 0 >= most
        {
            return .later
        }
        let current = files[item]?.bytes ?? 0
        let more = max(bytes - current, 0)
        guard more > 0 else {
            if files[item] == nil { set(item, to: bytes, of: user) }
            return .granted
        }
        let others = sum(of: user) - current
        if let limit = limits.perUser ?? (user == limits.exempt ? nil : limits.share) {
            guard bytes <= limit else { return .never(limit: limit) }
            guard others <= limit - bytes else { return .later }
        }
        guard more <= free - limits.reserve else { return .full }
        if limits.perUser == nil, user != limits.exempt {
            // Grants space only if the disk afterwards has as much free space as all files of this user take.
            guard others <= free - limits.reserve - more - bytes else { return .later }
        }
        set(item, to: bytes, of: user)
        return .granted
    }

    /// Counts a file under another key.
    mutating func move(_ item: Item, to other: Item) {
        guard let file = files[item] else { return }
        release(item)
        set(other, to: file.bytes, of: file.user)
    }

    /// Stops counting a file; returns its user if it was counted.
    @discardableResult
    mutating func release(_ item: Item) -> UInt32? {
        guard let file = files.removeValue(forKey: item) else { return nil }
        let left = (sums[file.user] ?? 0) - file.bytes
        sums[file.user] = left > 0 ? left : nil
        let count = (counts[file.user] ?? 0) - 1
        counts[file.user] = count > 0 ? count : nil
        return file.user
    }

    /// Upper bound of a file's size, larger than any disk, so that sums do not overflow.
    private static let most: Int64 = 1 << 50
}
