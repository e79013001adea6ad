package import Dispatch
import Synchronization

/// A barrier that a test opens; until then, threads that wait for it are blocked.
///
/// ```swift
/// let gate = Gate()
/// server.answer("/pack", with: .content(bytes).held(after: 1000, until: gate))
/// …
/// gate.open()
/// ```
///
/// With it, a test decides when a response continues. A server that only sends slowly may have sent everything before a busy
/// machine runs the test again.
package final class Gate: Sendable {
    private let group = DispatchGroup()
    private let isOpen = Mutex(false)

    /// Creates a gate that is closed.
    package init() { group.enter() }

    // A group whose counter is not zero must not be released.
    deinit { open() }

    /// Opens the gate; this cannot be undone.
    package func open() {
        let wasOpen = isOpen.withLock { isOpen in
            defer { isOpen = true }
            return isOpen
        }
        if !wasOpen { group.leave() }
    }

    /// Blocks the thread until the gate is open, and returns whether it is: `false` after `limit`.
    ///
    /// The limit is that of ``poll(_:within:sourceLocation:_:)``, so no thread outlives its test for long.
    @discardableResult
    package func wait(within limit: DispatchTimeInterval = .seconds(300)) -> Bool {
        group.wait(timeout: .now() + limit) == .success
    }
}
