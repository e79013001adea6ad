extension Scheduler {
    /// Limits of concurrent transfers.
    struct Limits: Equatable, Sendable {
        var total = 16
        var perHost = 6
        /// Maximum number of concurrent workers.
        var workers = 16
        /// Maximum number of concurrent workers of one user.
        var workersPerUser = 2
        /// Seconds after which a transfer yields to a user without any, if all other users have equally many.
        var slice = 300.0
    }

    /// Reasons that block a transfer until an explicit action removes them.
    struct Blocks: OptionSet, Sendable {
        let rawValue: UInt8
        static let client = Blocks(rawValue: 1 << 0)
        static let user = Blocks(rawValue: 1 << 1)
        static let authentication = Blocks(rawValue: 1 << 2)
        /// Another task downloads the same content.
        static let leader = Blocks(rawValue: 1 << 3)
    }

    /// Transfers to start and to stop.
    struct Turn: Equatable, Sendable {
        var start: [Int64] = []
        var stop: [Int64] = []
    }
}
