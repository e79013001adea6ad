import Synchronization

/// Sends elements to all listeners.
///
/// Buffers a limited number of elements for each listener, so that a slow listener does not delay the sender. A full buffer
/// drops one element: the oldest one that a later element supersedes, or else the oldest of kind ``Kind/progress``, or else
/// the oldest.
package final class Broadcast<Element: Sendable>: Sendable {
    /// The loss to a listener if an element is dropped.
    package enum Kind: Sendable {
        /// Nothing after the next element about the same subject, which follows soon.
        case progress
        /// Nothing after the next element about the same subject, which may follow late.
        case state
        /// A step that no later element shows.
        case step
    }

    /// Decides which elements are dropped.
    private struct Rules: Sendable {
        var capacity: Int
        var kind: @Sendable (Element) -> Kind
        var haveSameSubject: @Sendable (Element, Element) -> Bool

        /// Returns the index of the element that is dropped for a new one.
        ///
        /// Takes one pass for each subject with an element that none supersedes.
        func indexToDrop(from elements: [Element], for new: Element) -> Int {
            let superseded = elements.indices.first { index in
                let element = elements[index]
                return kind(element) != .step
                    && (haveSameSubject(new, element)
                        || elements[(index + 1)...].contains { haveSameSubject($0, element) })
            }
            return superseded ?? elements.firstIndex { kind($0) == .progress } ?? 0
        }
    }

    /// Elements that a listener has not received yet.
    private final class Buffer: Sendable {
        private struct Content {
            var elements: [Element] = []
            /// `true` once the last element was added.
            var isComplete = false
        }

        private let content = Mutex(Content())

        /// Adds an element; returns `false` without adding it after the last one, which another thread may have sent
        /// meanwhile.
        func append(_ element: Element, isLast: Bool, by rules: Rules) -> Bool {
            content.withLock { content in
                guard !content.isComplete else { return false }
                content.isComplete = isLast
                if content.elements.count >= rules.capacity {
                    let index = rules.indexToDrop(from: content.elements, for: element)
                    content.elements.remove(at: index)
                }
                content.elements.append(element)
                return true
            }
        }

        func removeFirst() -> Element? {
            content.withLock { $0.elements.isEmpty ? nil : $0.elements.removeFirst() }
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

    private let rules: Rules
    private let state = Mutex(State())

    /// Creates a broadcast without listeners.
    ///
    /// - Parameters:
    ///   - capacity: The maximum number of elements that are buffered for a listener.
    ///   - haveSameSubject: Returns whether two elements are about the same subject.
    ///   - kind: Returns what a listener loses without an element.
    package init(
        buffering capacity: Int,
        haveSameSubject: @escaping @Sendable (Element, Element) -> Bool,
        kind: @escaping @Sendable (Element) -> Kind
    ) {
        rules = Rules(capacity: capacity, kind: kind, haveSameSubject: haveSameSubject)
    }

    /// Sends an element to all listeners that receive it.
    package func send(_ element: Element) {
        let listeners = state.withLock { Array($0.listeners.values) }
        for listener in listeners where listener.receives(element) {
            let isLast = listener.ends(element)
            guard listener.buffer.append(element, isLast: isLast, by: rules) else { continue }
            listener.wake.yield()
            if isLast { listener.wake.finish() }
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
                // After the end of `wakes`, an element may have been added since the check above.
                guard await wakes.first(where: { _ in true }) != nil else {
                    return buffer.removeFirst()
                }
            }
        })
    }
}
