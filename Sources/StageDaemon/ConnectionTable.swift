/// Decides which client connections stay open, which requests run, and how much memory request bodies may use.
///
/// Does no I/O. Each user has a limit for every resource, so no user can starve another. At the limit of a user, a new
/// connection closes that user's oldest idle connection; at the limit of all users, it closes a connection of the
/// user who has most. Each user's requests run a few at a time, in order of arrival.
struct ConnectionTable {
    /// Limits of all resources.
    struct Limits: Equatable, Sendable {
        /// Connections of all users.
        var total: Int
        /// Connections of one user.
        var perUser: Int
        /// Event streams of one user, including those of all sessions.
        var streamsPerUser: Int
        /// Maximum bytes of unfinished request bodies, for all users together.
        var bodies = 32 << 20
        /// Maximum bytes of unfinished request bodies, for one user.
        var bodiesPerUser = 8 << 20
        /// Bytes of each body that are not counted, so that small requests always get through.
        var smallBody = 16 << 10
        /// Concurrent requests of one user.
        ///
        /// A request with a large body counts as all but one of them.
        var requestsPerUser = 4
    }

    /// Decision on a new connection.
    enum Admission: Equatable, Sendable {
        /// Admitted. The connection `closing`, if any, is closed to make room.
        case admitted(closing: Int?)
        /// Refused: there are too many connections.
        case refused
    }

    /// Decision on a complete request.
    enum StartDecision: Equatable, Sendable {
        /// The request runs now.
        case now
        /// The request waits until ``ConnectionTable/end(_:)`` or ``ConnectionTable/stream(_:)`` returns its connection.
        case queued
        /// The connection has closed, and the request does not run.
        case gone
    }

    /// State of a connection.
    enum Activity: Sendable {
        /// Idle, or receiving a request.
        case waiting
        /// The request waits for other requests of the user.
        case queued
        /// The request is running.
        case answering
        /// The client reads an event stream.
        case streaming
    }

    private struct Connection {
        var user: UInt32
        var activity = Activity.waiting
        var body = 0
        /// Weight of the running request, counted against ``Limits/requestsPerUser``.
        var weight = 0
        /// Set if the connection closed while its request was running.
        var isClosed = false
    }

    /// Connections and requests of one user.
    private struct Usage {
        var connections: Set<Int> = []
        var works = 0
        var queue: [Int] = []
        var streams = 0
        var bodies = 0
    }

    var limits: Limits
    private var connections: [Int: Connection] = [:]
    private var usage: [UInt32: Usage] = [:]
    private var bodies = 0

    init(_ limits: Limits) { self.limits = limits }

    /// Number of connections.
    var count: Int { connections.count }

    /// Admits a new connection.
    ///
    /// Identifiers must increase with each call.
    mutating func admit(_ id: Int, of user: UInt32) -> Admission {
        var closing: Int?
        if usage[user]?.connections.count ?? 0 >= limits.perUser {
            closing = oldest(of: user)
            guard closing != nil else { return .refused }
        } else if connections.count >= limits.total {
            closing = connectionToClose(for: user)
            guard closing != nil else { return .refused }
        }
        if let closing { drop(closing) }
        connections[id] = Connection(user: user)
        usage[user, default: Usage()].connections.insert(id)
        return .admitted(closing: closing)
    }

    /// Removes a connection; returns whether its request was queued and will not run.
    ///
    /// A running request keeps counting until it ends, even if its client has disconnected.
    mutating func close(_ id: Int) -> Bool {
        guard let connection = connections[id] else { return false }
        if connection.activity == .answering {
            connections[id]?.isClosed = true
            return false
        }
        drop(id)
        return connection.activity == .queued
    }

    /// Queues the complete request of a connection, and decides whether it runs now.
    ///
    /// The request of a closed connection would count for no user, so it does not run.
    mutating func begin(_ id: Int) -> StartDecision {
        guard let connection = connections[id] else { return .gone }
        guard connection.activity == .waiting else { return .now }
        let isLarge = connection.body > limits.smallBody
        connections[id]?.weight = isLarge ? max(limits.requestsPerUser - 1, 1) : 1
        connections[id]?.activity = .queued
        usage[connection.user]?.queue.append(id)
        return next(of: connection.user).contains(id) ? .now : .queued
    }

    /// Ends the request of a connection; returns the connections whose requests run now.
    mutating func end(_ id: Int) -> [Int] {
        guard let connection = connections[id] else { return [] }
        let user = connection.user
        if connection.activity == .streaming { usage[user]?.streams -= 1 }
        if connection.activity == .answering { usage[user]?.works -= connection.weight }
        let body = counted(connection.body)
        usage[user]?.bodies -= body
        bodies -= body
        connections[id]?.activity = .waiting
        connections[id]?.body = 0
        if connection.isClosed { drop(id) }
        return next(of: user)
    }

    /// Converts a running request into an event stream; returns the connections whose requests run now, or `nil` if
    /// the user has too many streams.
    mutating func stream(_ id: Int) -> [Int]? {
        guard let connection = connections[id], connection.activity == .answering,
            usage[connection.user]?.streams ?? 0 < limits.streamsPerUser
        else { return nil }
        connections[id]?.activity = .streaming
        usage[connection.user]?.works -= connection.weight
        usage[connection.user]?.streams += 1
        if connection.isClosed { drop(id) }
        return next(of: connection.user)
    }

    private mutating func next(of user: UInt32) -> [Int] {
        var started: [Int] = []
        while let id = usage[user]?.queue.first, let weight = connections[id]?.weight,
            (usage[user]?.works ?? 0) + weight <= limits.requestsPerUser
        {
            usage[user]?.queue.removeFirst()
            usage[user]?.works += weight
            connections[id]?.activity = .answering
            started.append(id)
        }
        return started
    }

    private mutating func drop(_ id: Int) {
        guard let connection = connections.removeValue(forKey: id) else { return }
        let (user, body) = (connection.user, counted(connection.body))
        if connection.activity == .streaming { usage[user]?.streams -= 1 }
        usage[user]?.bodies -= body
        bodies -= body
        usage[user]?.queue.removeAll { $0 == id }
        usage[user]?.connections.remove(id)
        let isLast = usage[user]?.connections.isEmpty ?? true
        if isLast { usage[user] = nil }
    }

    /// Sets the size of a request body; returns `false` if that exceeds the memory limits.
    mutating func reserveMemory(_ bytes: Int, by id: Int) -> Bool {
        guard let connection = connections[id], bytes >= connection.body else { return false }
        let more = counted(bytes) - counted(connection.body)
        let own = usage[connection.user]?.bodies ?? 0
        guard more == 0 || own + more <= limits.bodiesPerUser && bodies + more <= limits.bodies
        else { return false }
        connections[id]?.body = bytes
        usage[connection.user]?.bodies += more
        bodies += more
        return true
    }

    private func counted(_ bytes: Int) -> Int { max(bytes - limits.smallBody, 0) }

    /// Returns the user's oldest connection without a complete request.
    private func oldest(of user: UInt32) -> Int? {
        usage[user]?.connections.filter { connections[$0]?.activity == .waiting }.min()
    }

    /// Returns the connection to close for `user`, from the user with the most connections: the oldest idle one, else
    /// the oldest stream, else the oldest queued one.
    ///
    /// Returns `nil` if no user has more connections than `user`.
    private func connectionToClose(for user: UInt32) -> Int? {
        let most = usage.values.map(\.connections.count).max() ?? 0
        guard most > usage[user]?.connections.count ?? 0 else { return nil }
        let candidates = usage.values.filter { $0.connections.count == most }
            .flatMap(\.connections)
        for activity in [Activity.waiting, .streaming, .queued] {
            let found = candidates.filter { connections[$0]?.activity == activity }.min()
            if let found { return found }
        }
        return nil
    }
}

extension ConnectionTable.Limits {
    /// Creates limits from the number of descriptors: half of them for clients, at least 16 and at most 1,024; an eighth of
    /// these for one user, at least 8.
    init(descriptors: Int) {
        total = min(max(descriptors / 2, 16), 1024)
        perUser = max(total / 8, 8)
        streamsPerUser = perUser / 2
    }
}
