import Foundation
import StageControl
import Synchronization

/// Tells a delegate of the downloads of an application group, as long as there is one.
///
/// Each delegate has a connection of its own, and so hears what the one before has left. An event is acknowledged
/// when the delegate has returned, that of a challenge when it is answered. Without a delegate there is no
/// connection: what happens then is the next one's to hear, in whatever process.
final class DelegateLink: Sendable {
    /// What gives the delegate that there is now.
    typealias Source = @Sendable () -> (any BADownloadManagerDelegate)?

    private struct State {
        /// How often the delegate was another one.
        var changes = 0
        /// The connection of a delegate, until it has ended.
        var connection: SessionConnection?
        /// The reason why no connection could be made for the delegate.
        var problem: ControlError?
    }

    private let session: DownloadSession
    private let delegate: Source
    private let state = Mutex(State())

    /// Creates the link of a session; it does nothing before ``delegateDidChange()``.
    init(_ session: DownloadSession, delegate: @escaping Source) {
        self.session = session
        self.delegate = delegate
    }

    /// Takes in that the delegate is another one, or none.
    func delegateDidChange() {
        let connection = state.withLock { state in
            state.changes += 1
            return state.connection
        }
        if let connection { connection.end() } else { attach() }
    }

    /// Attaches again where that was not possible.
    ///
    /// - Throws: ``ControlError/system(_:)`` if the process may still have no more threads.
    func retry() throws(ControlError) {
        guard state.withLock({ $0.problem != nil }) else { return }
        attach()
        if let problem = state.withLock({ $0.problem }) { throw problem }
    }

    /// Attaches on behalf of the delegate that there is, if no other is attached.
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
        let audience = DelegateAudience(session, new.connection) { [weak self] in
            self?.delegate(after: new.changes)
        }
        session.listen(over: new.connection)
        do throws(ControlError) {
            try new.connection.start(audience)
        } catch {
            // The next call of the manager tries again.
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
