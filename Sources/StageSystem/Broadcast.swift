import Synchronization

/// Sends elements to all listeners.
///
/// Buffers a number of elements per listener: a slow listener loses some and does not delay the sender. It loses the
/// oldest of those that later ones replace, such as progress, before any other, such as the end of a download.
package final class Broadcast<Element: Sendable>: Sendable {
    /// Elements that a listener has not received yet.
    private final class Buffer: Sendable {
        private let elements = Mutex<[Element]>([])

        func append(_ element: Element, limit: Int, isReplaced: (Element) -> Bool) {
            elements.withLock { elements in
                if elements.count >= limit {
                    elements.remove(at: elements.firstIndex(where: isReplaced) ?? 0)
                }
                elements.append(element)
            }
        }

        func removeFirst() -> Element? {
            elements.withLock { $0.isEmpty ? nil : $0.removeFirst() }
        }
    }

    private struct Listener {
        /// Indicates whether the listener receives an element.
        var receives: @Sendable (Element) -> Bool
        /// Indicates whether an element that the listener receives is its last one.
        var ends: @Sendable (Element) -> Bool
        var buffer: Buffer
        /// Wakes the listener when its buffer has an element.
        var wake: AsyncStream<Void>.Continuation
    }

    private struct State {
        var listeners: [UInt64: Listener] = [:]
        var lastKey: UInt64 = 0
    }

    private let capacity: Int
    private let isReplaced: @Sendable (Element) -> Bool
    private let state = Mutex(State())

    /// Creates a broadcast without listeners.
    ///
    /// - Parameters:
    ///   - capacity: The maximum number of elements that are buffered for a listener.
    ///   - isReplaced: Returns whether later elements make up for the loss of an element.
    package init(
        buffering capacity: Int,
        isReplaced: @escaping @Sendable (Element) -> Bool
    ) {
        self.capacity = capacity
        self.isReplaced = isReplaced
    }

    /// Sends an element to all listeners that receive it.
    package func send(_ element: Element) {
        let listeners = state.withLock { Array($0.listeners.values) }
        for listener in listeners where listener.receives(element) {
            listener.buffer.append(element, limit: capacity, isReplaced: isReplaced)
            listener.wake.yield()
            if listener.ends(element) { listener.wake.finish() }
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
        let buffer = Buffer()
        let (wakes, wake) = AsyncStream.makeStream(
            of: Void.self,
            bufferingPolicy: .bufferingNewest(1)
        )
        let key = state.withLock { state in
            state.lastKey += 1
            state.listeners[state.lastKey] = Listener(
                receives: receives,
                ends: ends,
                buffer: buffer,
                wake: wake
            )
            return state.lastKey
        }
        // The returned stream has the only reference to `wakes`.
        wake.onTermination = { [weak self] _ in
            self?.state.withLock { $0.listeners[key] = nil }
        }
        return AsyncStream(unfolding: {
            while true {
                if let element = buffer.removeFirst() { return element }
                // At the end of the wakes, the last element may have come after the look at the buffer.
                guard await wakes.first(where: { _ in true }) != nil else {
                    return buffer.removeFirst()
                }
            }
        })
    }
}
