import StageControl

/// Memory of the response heads that the histories of unfinished tasks keep for lists, with a limit for each user.
///
/// Servers that a user chooses decide how large the heads are, and a user may have 200,000 tasks.
struct ResponseHeadBudget {
    private var sizes: [Int64: (user: UInt32, bytes: Int)] = [:]
    private var sums: [UInt32: Int] = [:]

    /// Maximum bytes of the heads of one user's tasks.
    static let limit = 16 << 20

    /// Counts the head of a task in place of its earlier one; returns `false` if the limit does not permit it.
    mutating func add(_ head: TransferResponse, of task: Int64, user: UInt32) -> Bool {
        remove(task)
        let bytes = head.memorySize
        guard sums[user, default: 0] + bytes <= Self.limit else { return false }
        sizes[task] = (user, bytes)
        sums[user, default: 0] += bytes
        return true
    }

    /// Stops counting the head of a task.
    mutating func remove(_ task: Int64) {
        guard let (user, bytes) = sizes.removeValue(forKey: task) else { return }
        let rest = sums[user, default: 0] - bytes
        sums[user] = rest > 0 ? rest : nil
    }
}

extension TransferResponse {
    /// Approximate bytes of the head in memory: many short fields take more than their text.
    var memorySize: Int {
        headers.reduce(url.utf8.count) { sum, field in
            field.reduce(sum + Self.fieldOverhead) { $0 + $1.utf8.count }
        }
    }

    private static let fieldOverhead = 96

    /// The head without header fields; `nil` if its URL is long, too.
    var reduced: TransferResponse? {
        guard url.utf8.count <= Self.longestReducedURL else { return nil }
        return TransferResponse(url: url, status: status, headers: [])
    }

    private static let longestReducedURL = 256
}
