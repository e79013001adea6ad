import Dispatch
import Foundation
import NIOCore
import NIOPosix
import StageSystem

/// Start of the daemon's event loops, timers and threads, before other parts use up the descriptors.
///
/// The runtimes create these lazily and trap if the system refuses one: each event loop takes three descriptors, and
/// each clock a timer.
package enum EventLoops {
    /// Creates the event loops, timers and threads.
    ///
    /// A program calls this once, before it starts a ``Daemon``.
    package static func start() async {
        // Two loops serve any number of local clients; one per processor would only cost descriptors.
        NIOSingletons.groupLoopCountSuggestion = 2
        _ = MultiThreadedEventLoopGroup.singleton.next()
        let timer = DispatchSource.makeTimerSource()
        timer.setEventHandler {}
        timer.schedule(wallDeadline: .now() + .seconds(1))
        timer.activate()
        // Cancelled: the daemon is to end anyway.
        try? await ContinuousClock().sleep(for: .milliseconds(1))
        try? await SuspendingClock().sleep(for: .milliseconds(1))
        timer.cancel()
        // The pool keeps its first thread, which then does all blocking work if no further thread can be created.
        await withBlockingThread {}
    }

    /// Waits until each event loop has run a submitted task: a loop that is blocked serves no client.
    static func waitForEachLoop() async {
        for loop in MultiThreadedEventLoopGroup.singleton.makeIterator() {
            // Fails only after the loop has been shut down.
            try? await loop.submit {}.get()
        }
    }
}
