import Dispatch
import Foundation
import NIOCore
import NIOPosix
import StageSystem

/// Makes the event loops, timers and threads of the daemon's runtimes before other parts take descriptors.
///
/// Each of them is made when it is needed first, and ends the process where the system refuses it: the event loops,
/// which take three descriptors each, and the timers of each clock.
public enum EventLoops {
    /// Makes all of them; for a program, once, before it starts a ``Daemon``.
    public static func start() async {
        // A few loops serve any number of local clients: not one for each processor, and descriptors for each.
        NIOSingletons.groupLoopCountSuggestion = 2
        _ = MultiThreadedEventLoopGroup.singleton.next()
        let timer = DispatchSource.makeTimerSource()
        timer.setEventHandler {}
        timer.schedule(wallDeadline: .now() + .seconds(1))
        timer.activate()
        // Cancelled: the daemon ends anyway.
        try? await ContinuousClock().sleep(for: .milliseconds(1))
        try? await SuspendingClock().sleep(for: .milliseconds(1))
        timer.cancel()
        // The first thread for blocking work stays, and does all of it where there can be no other.
        await withBlockingThread {}
    }
}
