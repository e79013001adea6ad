import Synchronization

/// Sends elements to all listeners.
///
/// Buffers a number of elements per listener: a slow listener loses the oldest ones and does not delay the sender.
package final class Broadcast<Element: Sendable>: Sendable {
    private struct Listener {
        /// Indicates whether the listener receives an element.
        var receives: @Sendable (Element) -> Bool
        /// Indicates whether an element that the listener receives is its last one.
        var ends: @Sendable (Element) -> Bool
        var continuation: AsyncStream<Element>.Continuation
    }

    private struct State {
        var listeners: [UInt64: Listener] = [:]
        var lastKey: UInt64 = 0
    }

    private let capacity: Int
    private let state = Mutex(State())

    /// Creates a broadcast without listeners that buffers at most `capacity` elements for each.
    package init(bufferingNewest capacity: Int) { self.capacity = capacity }

    /// Sends an element to all listeners that receive it.
    package func send(_ element: Element) {
        let listeners = state.withLock { Array($0.listeners.values) }
        for listener in listeners where listener.receives(element) {
            listener.continuation.yield(element)
            if listener.ends(element) { listener.continuation.finish() }
        }
    }

    /// Adds a listener, and returns its elements from now on.
    ///
    /// - Parameters:
    ///   - receives: Returns whether the listener receives an element.
    ///   - ends: Returns whether an element that the listener receives is its last one.
    /// - Returns: The elements from now on.
    package func elements(
        where receives: @escaping @Sendable (Element) -> Bool = { _ in true },
        endingWith ends: @escaping @Sendable (Element) -> Bool = { _ in false }
    ) -> AsyncStream<Element> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: Element.self,
            bufferingPolicy: .bufferingNewest(capacity)
        )
        let key = state.withLock { state in
            state.lastKey += 1
            state.listeners[state.lastKey] = Listener(
                receives: receives,
                ends: ends,
                continuation: continuation
            )
            return state.lastKey
        }
        continuation.onTermination = { [weak self] _ in
            self?.state.withLock { $0.listeners[key] = nil }
        }
        return stream
    }
}
