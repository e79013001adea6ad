package import Logging
package import StageSystem

/// Monitor of network and power conditions.
///
/// Reads NetworkManager, UPower and the power profiles on the system bus, and `/sys` if UPower reports nothing. A
/// service that is missing, restarts or returns invalid values yields unknown conditions, never an error, and is used
/// again as soon as it is available.
///
/// Without NetworkManager, connectivity is unknown. The routing table does not show it: servers may be in the local
/// network of a machine without a default route, and a default route does not prove that any host can be reached.
/// ``networkChanges`` needs no NetworkManager: the kernel reports new links, addresses and routes, after which failed
/// transfers may succeed.
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

    /// Stream of network changes after which hosts may be reachable that were not before; empty unless
    /// ``ConditionSources/watchesNetwork`` is set.
    ///
    /// For one reader. Changes that it has not read yet are merged into one. The stream ends when the monitor stops.
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
