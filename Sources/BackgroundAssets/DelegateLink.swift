import Foundation
import StageControl
import StageSystem
import Synchronization

/// Tells a delegate of the downloads of an application group, as long as there is one.
///
/// A thread attaches to the session, again whenever the connection is lost, and calls the delegate. An event
/// is acknowledged when the delegate has returned, that of a challenge when it is answered. Without a
/// delegate nothing is taken in: what happens then is the next one's to hear, in whatever process.
final class DelegateLink: Sendable {
    /// What gives the delegate that there is now.
    typealias Source = @Sendable () -> (any BADownloadManagerDelegate)?

    private struct State {
        /// How often the delegate was another one.
        var changes = 0
        var isRunning = false
        var events: ControlEvents?
    }

    private let session: DownloadSession
    private let delegate: Source
    private let monitor = Monitor(State())

    /// Creates the link of a session; it does nothing before ``delegateDidChange()``.
    init(_ session: DownloadSession, delegate: @escaping Source) {
        self.session = session
        self.delegate = delegate
    }

    /// Takes in that the delegate is another one, or none.
    func delegateDidChange() {
        let hasDelegate = delegate() != nil
        let (mustStart, events) = monitor.change { state in
            state.changes += 1
            defer { state.isRunning = state.isRunning || hasDelegate }
            return (hasDelegate && !state.isRunning, state.events)
        }
        events?.close()
        guard mustStart else { return }
        do throws(FileError) {
            try SystemThread(name: "stage-delegate") { [self] in run() }.detach()
        } catch {
            preconditionFailure("a delegate needs a thread: \(error)")
        }
    }

    private func run() {
        var backoff = Backoff()
        var audience: DelegateAudience?
        while true {
            let changes = monitor.change { $0.changes }
            guard delegate() != nil else {
                let isOver = monitor.change { state in
                    state.isRunning = state.changes != changes
                    return !state.isRunning
                }
                if isOver { return }
                continue
            }
            // Another delegate is to hear what the one before has left.
            let current =
                audience.flatMap { $0.changes == changes ? $0 : nil }
                ?? DelegateAudience(session, changes: changes)
            audience = current
            if attempt(current) { backoff.reset() }
            _ = monitor.wait(atMost: backoff.next()) { $0.changes == changes ? nil : true }
        }
    }

    /// Attaches and tells the delegate until that is over; returns whether it was attached.
    private func attempt(_ audience: DelegateAudience) -> Bool {
        var isAttached = false
        // What keeps the daemon away is told to whoever asks something of it; here it is tried again.
        do throws(ControlError) {
            let after = audience.attach(try session.make())
            let tasks = try session.tasks()
            let events = try session.openEvents(after: after)
            let isWanted = monitor.change { state in
                state.events = events
                return state.changes == audience.changes
            }
            defer { monitor.change { $0.events = nil } }
            guard isWanted else { return false }
            while let event = try events.nextEvent() {
                guard let delegate = current(audience.changes) else { return isAttached }
                if event.kind == .attached {
                    isAttached = true
                    audience.acknowledge()
                    for task in tasks { audience.show(task, delegate) }
                } else if event.kind == .invalidated {
                    return isAttached
                } else {
                    try audience.take(event, delegate)
                }
            }
        } catch {}
        return isAttached
    }

    private func current(_ changes: Int) -> (any BADownloadManagerDelegate)? {
        guard monitor.change({ $0.changes == changes }) else { return nil }
        return delegate()
    }
}
