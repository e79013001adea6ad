public import Logging
public import StageSystem

/// Follows what the machine says of its network and its power.
///
/// Readings come from NetworkManager, UPower and the power profiles on the system bus, and from
/// `/sys` where UPower says nothing. What of these is missing, restarts or makes no sense turns into
/// readings that are unknown, never into an error, and counts again as soon as it is there.
///
/// Without NetworkManager nobody says how far the network reaches: a table of routes with no default
/// route may belong to a machine whose servers are near, and one with it leads wherever it leads.
///
/// One thread does everything and sleeps until something changes: there are no timers, except while
/// an obstacle is gone and does not count as gone yet, and while a bus refuses connections.
///
/// The thread ends when the monitor goes.
public final class ConditionMonitor: Sendable {
    private let board: ConditionBoard

    /// Starts to follow, and waits for nothing: until readings come, conditions are unknown.
    ///
    /// - Throws: ``FileError`` if the process may have no more threads or open files.
    public init(sources: ConditionSources, logger: Logger) throws(FileError) {
        let board = try ConditionBoard(Conditions.unknown.overridden(by: sources.overrides))
        self.board = board
        try SystemThread(name: "stage-condition") {
            var loop = ConditionLoop(sources: sources, board: board, logger: logger)
            loop.run()
        }.detach()
    }

    deinit { stop() }

    /// What counts now.
    public var current: Conditions { board.current }

    /// Returns a stream of what counts: what counts now at once, then each change.
    ///
    /// Whoever is slow misses what was overtaken, and always gets what counts last. The stream ends
    /// when the monitor stops.
    public func changes() -> AsyncStream<Conditions> { board.subscribe() }

    /// Waits for the first readings, and returns what counts then.
    ///
    /// Services that say nothing are waited for as long as ``ConditionSources/patience`` says, so
    /// whoever starts transfers only after this does not spend money before it is known to be spent.
    public func settled() async -> Conditions {
        await withCheckedContinuation { board.awaitSettling($0) }
    }

    /// Reads what the system does not tell by itself, and returns what counts then.
    ///
    /// That is the battery of a machine without UPower: the kernel tells of sockets being plugged,
    /// and not of every point of charge, nor does it tell containers anything.
    public func refresh() async -> Conditions {
        await withCheckedContinuation { board.requestReading($0) }
    }

    /// Asks NetworkManager to look whether the internet can be reached, as when a portal is suspected.
    ///
    /// What comes of it is told as any change; without NetworkManager it is nothing.
    public func checkConnectivity() { board.request { $0.checksConnectivity = true } }

    /// Ends the thread and all streams; conditions stay what they were.
    public func stop() { board.request { $0.isStopping = true } }
}
