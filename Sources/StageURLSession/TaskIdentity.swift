import Foundation
import StageControl
import Synchronization

/// The identifier of a task within its session, which its process chooses and which its token carries to the daemon.
///
/// So it is known at once, without the daemon, and is the same in every later process. Its upper bits are the number of
/// microseconds since 2001 at which the task was created, or the next free one, and its last eleven bits are the process's
/// own: two processes create tasks of one session at the same time.
struct TaskIdentity: Equatable {
    private static let prefix = "urlsession-"
    private static let last = Mutex<Int64>(0)
    private static let processBits: Int64 = 11
    private static let process = Int64.random(in: 0..<1 << processBits)

    /// The identifier.
    let number: Int

    /// Chooses the identifier of a new task.
    init(at now: Date) {
        let time = Int64(max(now.timeIntervalSinceReferenceDate, 0) * 1_000_000)
        let number = Self.last.withLock { last in
            last = max(last + 1, time)
            return last
        }
        self.number = Int(number << Self.processBits | Self.process)
    }

    /// Reads the identifier of a token; `nil` for one that another program has chosen.
    init?(token: String) {
        let parts = token.split(separator: "-", omittingEmptySubsequences: false)
        guard token.hasPrefix(Self.prefix), parts.count == 3, parts[1].first?.isNumber == true,
            let number = Int(parts[1]), number > 0
        else { return nil }
        self.number = number
    }

    /// A new token that carries the identifier.
    var newToken: String {
        "\(Self.prefix)\(number)-\(String(UInt64.random(in: .min ... .max), radix: 16))"
    }

    /// The identifier of a task of the daemon's: that of its token, or else the daemon's number.
    static func number(of task: TransferTask) -> Int {
        TaskIdentity(token: task.request.token)?.number ?? Int(task.id)
    }
}
