package import Logging
package import StageSystem

/// Monitor of network and power conditions.
///
/// Reads NetworkManager, UPower and the power profiles on the system bus, and `/sys` if UPower reports nothing. A
/// service that is missing, restarts or returns invalid values yields unknown conditions, never an error, and is used
/// again as soon as it is available.
///
/// Without NetworkManager, connectivity is unknown: the routing table does not tell it, since servers may be local to
/// a machine without a default route, and a default route may lead nowhere. A link, an address or a route that appears
/// is a reason to try again, though: ``networkChanges`` reports it, with any network service or none.
///
/// One thread does all the work, and sleeps until an event. It uses timers only while the end of an obstacle or a change
/// of the network is debounced and while a bus refuses connections.
///
/// The thread ends with the monitor.
package final class ConditionMonitor: Sendable {
    private let board: SharedConditions

    /// Starts the monitor without waiting; conditions are unknown until they are read.
    ///
    /// - Throws: ``FileError`` if the process may have no more threads or open files.
    package init(sources: ConditionSources, logger: Logger) throws(FileError) {
        let board = try SharedConditions()
        self.board = board
        try SystemThread(name: "stage-condition") {
            var loop = ConditionLoop(sources: sources, board: board, logger: logger)
            loop.run()
        }.detach()
    }

    deinit { stop() }

    /// Current conditions.
    package var current: Conditions { board.current }

    /// Returns a stream with the current conditions and each change.
    ///
    /// A slow reader misses intermediate changes, but always receives the latest. The stream ends when the monitor
    /// stops.
    package func changes() -> AsyncStream<Conditions> { board.subscribe() }

    /// Stream of changes by which hosts may be reachable that were not, if
    /// ``ConditionSources/watchesNetwork`` is set.
    ///
    /// For one reader; several changes that it has not read are one. The stream ends when the monitor stops.
    package var networkChanges: AsyncStream<Void> { board.networkChanges }

    /// Waits for the first readings, and returns the conditions.
    ///
    /// Waits at most ``ConditionSources/readingTimeout`` for services that do not respond. Starting transfers only
    /// afterwards avoids using a metered network before it is known to be one.
    package func settled() async -> Conditions {
        await withCheckedContinuation { board.awaitSettling($0) }
    }

    /// Ends the thread and all streams.
    ///
    /// The conditions stay at their last values.
    package func stop() { board.requestEnd() }
}
