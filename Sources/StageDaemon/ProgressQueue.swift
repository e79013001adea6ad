import DequeModule
import StageControl

/// Progress events of running transfers that wait for their delivery, limited in number and memory.
///
/// At the limit, the user whose events take the most memory loses the oldest of them: servers that a user chooses decide
/// how large the events are, and these displace none of another user.
struct ProgressQueue {
    private struct Entry {
        var event: SessionEvent
        var session: Int64
        var user: UInt32?
        var bytes: Int
    }

    /// Maximum number of queued events.
    static let limit = 4096
    /// Maximum memory of the queued events in bytes.
    static let maximumBytes = 4 << 20

    private var entries: Deque<Entry> = []
    /// Memory of ``entries``.
    private var bytes = 0
    /// Memory of the entries of each user.
    private var bytesByUser: [UInt32?: Int] = [:]

    /// Queues an event of a session; `user` owns the session.
    ///
    /// - Returns: The sessions of which an event was dropped.
    mutating func append(
        _ event: SessionEvent,
        of session: Int64,
        user: UInt32?
    ) -> Set<Int64> {
        let entry = Entry(event: event, session: session, user: user, bytes: event.memorySize)
        entries.append(entry)
        bytes += entry.bytes
        bytesByUser[user, default: 0] += entry.bytes
        var missed: Set<Int64> = []
        while entries.count > Self.limit || bytes > Self.maximumBytes && entries.count > 1 {
            guard let dropped = drop() else { break }
            missed.insert(dropped)
        }
        return missed
    }

    /// Removes and returns all events with their sessions, in order.
    mutating func takeAll() -> [(event: SessionEvent, session: Int64)] {
        defer { self = ProgressQueue() }
        return entries.map { (event: $0.event, session: $0.session) }
    }

    /// Drops the oldest event of the user with the most memory, and returns its session.
    private mutating func drop() -> Int64? {
        guard let largest = bytesByUser.max(by: { $0.value < $1.value }),
            let index = entries.firstIndex(where: { $0.user == largest.key })
        else { return nil }
        let entry = entries.remove(at: index)
        bytes -= entry.bytes
        let rest = largest.value - entry.bytes
        bytesByUser[largest.key] = rest > 0 ? rest : nil
        return entry.session
    }
}
