import Synchronization

/// Cancels asynchronous work from outside of its task.
package final class StopSwitch: Sendable {
    private let stream: AsyncStream<Void>
    private let signal: AsyncStream<Void>.Continuation

    /// Creates a switch that has not been used.
    package init() {
        (stream, signal) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
    }

    /// Cancels the work that ``run(_:)`` runs, now or later.
    package func stop() { signal.yield() }

    /// Runs `body` in a task that ``stop()`` cancels.
    package func run<Value: Sendable>(
        _ body: @escaping @Sendable () async -> Value
    ) async -> Value {
        await withTaskGroup(of: Value?.self) { group in
            group.addTask { await body() }
            group.addTask { [stream] in
                for await _ in stream { break }
                return nil
            }
            while let result = await group.next() {
                group.cancelAll()
                if let result { return result }
            }
            preconditionFailure("a body returns")
        }
    }
}
