import Foundation
import StageControl
import Synchronization

/// Identifier of a task within its session, chosen by its process and transmitted to the daemon in the task's token.
///
/// It is therefore known at once, without the daemon, and is the same in every later process. Its upper bits are the
/// time of creation in microseconds since 2001, or the next free number; its lower eleven bits identify the process,
/// so that two processes can create tasks of one session at the same time.
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

    /// Extracts the identifier from a token; `nil` for a token of another program.
    init?(token: String) {
        let parts = token.split(separator: "-", omittingEmptySubsequences: false)
        guard token.hasPrefix(Self.prefix), parts.count == 3, parts[1].first?.isNumber == true,
            let number = Int(parts[1]), number > 0
        else { return nil }
        self.number = number
    }

    /// A new token with the identifier.
    var newToken: String {
        "\(Self.prefix)\(number)-\(String(UInt64.random(in: .min ... .max), radix: 16))"
    }

    /// Returns the identifier of one of the daemon's tasks: from its token, or else the daemon's number.
    static func number(of task: TransferTask) -> Int {
        TaskIdentity(token: task.request.token)?.number ?? Int(task.id)
    }
}
