import Synchronization

private let progressLock = Mutex(())

/// Runs `body`, which creates or changes `Progress` objects, while no other thread does so.
///
/// Foundation's `Progress` has no locks on Linux, and a change of one also changes its parent, which the application
/// may share between the objects of any sessions: one lock protects all of them. `body` must not wait.
package func withProgressLock<Value: Sendable>(_ body: () -> Value) -> Value {
    progressLock.withLock { _ in body() }
}
