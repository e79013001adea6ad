/// Counts the files that are kept for each user and their bytes, and decides whether more may come.
///
/// It does no I/O: what is free on the disk is an argument. Sums do not overflow, whatever sizes users
/// give to files of theirs.
struct HeldBytes {
    /// A file that is counted.
    enum Item: Hashable, Sendable {
        /// A partial download, or a copy of a file to upload, by its name in the journal.
        case part(String)
        /// A finished download that was not moved away, by the number of its task.
        case staged(Int64)
    }

    /// The limits of one user.
    struct Limits: Equatable, Sendable {
        /// The most bytes of every user; `nil` if ``share`` decides.
        var perUser: Int64?
        /// The part of the file system that each user who is not ``exempt`` may have.
        var share: Int64
        /// The user whose bytes are limited by ``perUser`` only.
        var exempt: UInt32
        /// The bytes that stay free.
        var reserve: Int64
        /// The most files of each user who is not ``exempt``; `nil` for any number.
        var files: Int?
    }

    /// Whether a file may grow.
    enum Verdict: Equatable, Sendable {
        case granted
        /// Once the user has fewer other bytes.
        case later
        /// The file alone is more than the user may have: so many bytes.
        case never(limit: Int64)
        /// The disk is full but for the reserve.
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

    /// The bytes that are kept for a user.
    func sum(of user: UInt32) -> Int64 { sums[user] ?? 0 }

    /// The finished downloads of a user that count.
    func staged(of user: UInt32) -> [Int64] {
        files.compactMap { item, file in
            guard file.user == user, case .staged(let task) = item else { return nil }
            return task
        }
    }

    /// Counts a file with so many bytes, whatever the limits say: it is there.
    mutating func set(_ item: Item, to bytes: Int64, of user: UInt32) {
        release(item)
        let bytes = min(max(bytes, 0), Self.most)
        files[item] = File(user: user, bytes: bytes)
        counts[user, default: 0] += 1
        sums[user] = min((sums[user] ?? 0) + bytes, Self.most * 1024)
    }

    /// Counts a file with so many bytes if its user may have these; `free` is what the disk has left
    /// without them.
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
        let held = files[item]?.bytes ?? 0
        let more = max(bytes - held, 0)
        guard more > 0 else {
            if files[item] == nil { set(item, to: bytes, of: user) }
            return .granted
        }
        let others = sum(of: user) - held
        if let limit = limits.perUser ?? (user == limits.exempt ? nil : limits.share) {
            guard bytes <= limit else { return .never(limit: limit) }
            guard others <= limit - bytes else { return .later }
        }
        guard more <= free - limits.reserve else { return .full }
        if limits.perUser == nil, user != limits.exempt {
            // The others have as much left as this user has in all.
            guard others <= free - limits.reserve - more - bytes else { return .later }
        }
        set(item, to: bytes, of: user)
        return .granted
    }

    /// Counts a file under another name.
    mutating func move(_ item: Item, to other: Item) {
        guard let file = files[item] else { return }
        release(item)
        set(other, to: file.bytes, of: file.user)
    }

    /// Counts a file no longer; returns its user if it was counted.
    @discardableResult
    mutating func release(_ item: Item) -> UInt32? {
        guard let file = files.removeValue(forKey: item) else { return nil }
        let left = (sums[file.user] ?? 0) - file.bytes
        sums[file.user] = left > 0 ? left : nil
        let count = (counts[file.user] ?? 0) - 1
        counts[file.user] = count > 0 ? count : nil
        return file.user
    }

    /// More than any disk has: sums of it stay numbers.
    private static let most: Int64 = 1 << 50
}
