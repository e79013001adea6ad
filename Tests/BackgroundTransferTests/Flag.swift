import Synchronization

/// A flag that one thread sets, and others read.
final class Flag: Sendable {
    private let value = Atomic(false)

    /// Indicates whether the flag was set.
    var isSet: Bool { value.load(ordering: .acquiring) }

    /// Sets the flag; this cannot be undone.
    func set() { value.store(true, ordering: .releasing) }
}
