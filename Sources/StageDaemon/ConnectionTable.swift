/// Decides which connections of clients stay open, which requests are worked on, and how many bytes of
/// requests may be in memory.
///
/// It does nothing itself. Each user has a share of everything, so a user who takes all of theirs leaves
/// the others what is theirs: a new connection closes the oldest one of the same user that waits for a
/// request, and where all connections are in use, the oldest one of the user who has most. Of one user's
/// requests a few are worked on at once, in the order in which they came.
struct ConnectionTable {
    /// The most of everything.
    struct Limits: Equatable, Sendable {
        /// Connections of all users.
        var total: Int
        /// Connections of one user.
        var perUser: Int
        /// Streams of events of one user, those of sessions and those of everything together.
        var streamsPerUser: Int
        /// Bytes of bodies that are received or worked on, of all users.
        var bodies = 32 << 20
        /// Bytes of bodies that are received or worked on, of one user.
        var bodiesPerUser = 8 << 20
        /// Up to so many bytes of each body do not count: small requests go on whatever the others do.
        var smallBody = 16 << 10
        /// Requests of one user that are worked on at once; one with a large body counts as all but one.
        var worksPerUser = 4
    }

    /// The verdict on a new connection.
    enum Admission: Equatable, Sendable {
        /// It stays, and this one is closed for it.
        case admitted(closing: Int?)
        /// It is told that there are too many.
        case refused
    }

    /// The state of a connection.
    enum Activity: Sendable {
        /// Its next request is not complete.
        case waiting
        /// Its request waits until others of the user are answered.
        case queued
        /// Its request is worked on.
        case answering
        /// Its client reads events.
        case streaming
    }

    private struct Connection {
        var user: UInt32
        var activity = Activity.waiting
        var body = 0
        /// The weight of its request among those that are worked on.
        var weight = 0
        /// Whether it was closed while its request is worked on.
        var isClosed = false
    }

    private struct Share {
        var connections: Set<Int> = []
        var works = 0
        var queue: [Int] = []
        var streams = 0
        var bodies = 0
    }

    var limits: Limits
    private var connections: [Int: Connection] = [:]
    private var shares: [UInt32: Share] = [:]
    private var bodies = 0

    init(_ limits: Limits) { self.limits = limits }

    /// The number of connections.
    var count: Int { connections.count }

    /// Takes a connection in; numbers grow from one to the next.
    mutating func admit(_ id: Int, of user: UInt32) -> Admission {
        var closing: Int?
        if shares[user]?.connections.count ?? 0 >= limits.perUser {
            closing = oldest(of: user)
            guard closing != nil else { return .refused }
        } else if connections.count >= limits.total {
            closing = oldestOfGreediest(beside: user)
            guard closing != nil else { return .refused }
        }
        if let closing { drop(closing) }
        connections[id] = Connection(user: user)
        shares[user, default: Share()].connections.insert(id)
        return .admitted(closing: closing)
    }

    /// Takes note that a connection was closed; returns whether its request waited and is not worked on.
    ///
    /// A request that is worked on counts on, whether its client waits for the answer or not.
    mutating func close(_ id: Int) -> Bool {
        guard let connection = connections[id] else { return false }
        if connection.activity == .answering {
            connections[id]?.isClosed = true
            return false
        }
        drop(id)
        return connection.activity == .queued
    }

    /// Takes note that a connection has a request, and returns whether that is worked on now; it is the
    /// caller's to wait until ``end(_:)`` or ``stream(_:)`` names the connection otherwise.
    mutating func begin(_ id: Int) -> Bool {
        guard let connection = connections[id], connection.activity == .waiting else { return true }
        let isLarge = connection.body > limits.smallBody
        connections[id]?.weight = isLarge ? max(limits.worksPerUser - 1, 1) : 1
        connections[id]?.activity = .queued
        shares[connection.user]?.queue.append(id)
        return next(of: connection.user).contains(id)
    }

    /// Takes note that a connection's request is answered; returns the connections whose requests are
    /// worked on now.
    mutating func end(_ id: Int) -> [Int] {
        guard let connection = connections[id] else { return [] }
        let user = connection.user
        if connection.activity == .streaming { shares[user]?.streams -= 1 }
        if connection.activity == .answering { shares[user]?.works -= connection.weight }
        let body = counted(connection.body)
        shares[user]?.bodies -= body
        bodies -= body
        connections[id]?.activity = .waiting
        connections[id]?.body = 0
        if connection.isClosed { drop(id) }
        return next(of: user)
    }

    /// Takes note that a connection's client reads events; returns the connections whose requests are
    /// worked on now, or `nil` if the user's clients read as many streams as they may.
    mutating func stream(_ id: Int) -> [Int]? {
        guard let connection = connections[id], connection.activity == .answering,
            shares[connection.user]?.streams ?? 0 < limits.streamsPerUser
        else { return nil }
        connections[id]?.activity = .streaming
        shares[connection.user]?.works -= connection.weight
        shares[connection.user]?.streams += 1
        if connection.isClosed { drop(id) }
        return next(of: connection.user)
    }

    private mutating func next(of user: UInt32) -> [Int] {
        var started: [Int] = []
        while let id = shares[user]?.queue.first, let weight = connections[id]?.weight,
            (shares[user]?.works ?? 0) + weight <= limits.worksPerUser
        {
            shares[user]?.queue.removeFirst()
            shares[user]?.works += weight
            connections[id]?.activity = .answering
            started.append(id)
        }
        return started
    }

    private mutating func drop(_ id: Int) {
        guard let connection = connections.removeValue(forKey: id) else { return }
        let (user, body) = (connection.user, counted(connection.body))
        if connection.activity == .streaming { shares[user]?.streams -= 1 }
        shares[user]?.bodies -= body
        bodies -= body
        shares[user]?.queue.removeAll { $0 == id }
        shares[user]?.connections.remove(id)
        let isLast = shares[user]?.connections.isEmpty ?? true
        if isLast { shares[user] = nil }
    }

    /// Takes note that a body has grown to so many bytes, or returns `false` if there is no room.
    mutating func hold(_ bytes: Int, by id: Int) -> Bool {
        guard let connection = connections[id], bytes >= connection.body else { return false }
        let more = counted(bytes) - counted(connection.body)
        let own = shares[connection.user]?.bodies ?? 0
        guard more == 0 || own + more <= limits.bodiesPerUser && bodies + more <= limits.bodies
        else { return false }
        connections[id]?.body = bytes
        shares[connection.user]?.bodies += more
        bodies += more
        return true
    }

    private func counted(_ bytes: Int) -> Int { max(bytes - limits.smallBody, 0) }

    /// The user's oldest connection that has no complete request.
    private func oldest(of user: UInt32) -> Int? {
        shares[user]?.connections.filter { connections[$0]?.activity == .waiting }.min()
    }

    /// The connection that a user loses who has more than another one would then have: the oldest that
    /// has no complete request, else the oldest stream, else the oldest whose request waits for others.
    private func oldestOfGreediest(beside user: UInt32) -> Int? {
        let most = shares.values.map(\.connections.count).max() ?? 0
        guard most > shares[user]?.connections.count ?? 0 else { return nil }
        let greediest = shares.values.filter { $0.connections.count == most }
            .flatMap(\.connections)
        for activity in [Activity.waiting, .streaming, .queued] {
            let found = greediest.filter { connections[$0]?.activity == activity }.min()
            if let found { return found }
        }
        return nil
    }
}

extension ConnectionTable.Limits {
    /// Divides the descriptors that the process may have open: half of them are for clients, up to
    /// 1,024, and one user has an eighth of these.
    init(descriptors: Int) {
        total = min(max(descriptors / 2, 16), 1024)
        perUser = max(total / 8, 8)
        streamsPerUser = perUser / 2
    }
}
