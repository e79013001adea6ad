import Foundation
import StageControl
import Synchronization

/// Connects a delegate to the downloads of an application group while there is a delegate.
///
/// Each delegate has its own connection, and receives the events that the previous one left. An event is
/// acknowledged when the delegate returns, a challenge when it is answered. Without a delegate there is no
/// connection: the next delegate, in any process, receives the events.
final class DelegateConnector: Sendable {
    /// Returns the current delegate.
    typealias Source = @Sendable () -> (any BADownloadManagerDelegate)?

    private struct State {
        /// The number of changes of the delegate.
        var changes = 0
        /// The connection of a delegate, until it has ended.
        var connection: SessionConnection?
        /// The reason why the delegate could not be connected.
        var problem: ControlError?
    }

    private let session: DownloadSession
    private let delegate: Source
    private let state = Mutex(State())

    /// Creates the connector of a session; it is inactive before ``delegateDidChange()``.
    init(_ session: DownloadSession, delegate: @escaping Source) {
        self.session = session
        self.delegate = delegate
    }

    /// Reacts to a new or removed delegate.
    func delegateDidChange() {
        let connection = state.withLock { state in
            state.changes += 1
            return state.connection
        }
        if let connection { connection.end() } else { attach() }
    }

    /// Connects again after a failure.
    ///
    /// - Throws: ``ControlError/system(_:)`` if the process is still at its limit of threads.
    func retry() throws(ControlError) {
        guard state.withLock({ $0.problem != nil }) else { return }
        attach()
        if let problem = state.withLock({ $0.problem }) { throw problem }
    }

    /// Connects the current delegate unless another one is connected.
    private func attach() {
        state.withLock { $0.problem = nil }
        guard delegate() != nil else { return }
        let new = state.withLock { state -> (connection: SessionConnection, changes: Int)? in
            guard state.connection == nil else { return nil }
            let connection = SessionConnection(session.client)
            state.connection = connection
            return (connection, state.changes)
        }
        guard let new else { return }
        let notifier = DelegateNotifier(session, connection: new.connection) { [weak self] in
            self?.delegate(after: new.changes)
        }
        session.listen(over: new.connection)
        do throws(ControlError) {
            try new.connection.start(notifier)
        } catch {
            // The manager's next call retries.
            state.withLock { [error] state in
                state.connection = nil
                state.problem = error
            }
            return
        }
        new.connection.whenOver { [weak self] in
            self?.state.withLock { $0.connection = nil }
            self?.attach()
        }
    }

    private func delegate(after changes: Int) -> (any BADownloadManagerDelegate)? {
        guard state.withLock({ $0.changes == changes }) else { return nil }
        return delegate()
    }
}
