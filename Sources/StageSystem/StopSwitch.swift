import Synchronization

/// Ends work from outside of the task that it runs in.
public final class StopSwitch: Sendable {
    private let stream: AsyncStream<Void>
    private let signal: AsyncStream<Void>.Continuation

    /// Creates a switch of work that goes on.
    public init() {
        (stream, signal) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
    }

    /// Ends what ``run(_:)`` runs, or will run.
    public func stop() { signal.yield() }

    /// Runs `body`, whose task is cancelled when ``stop()`` is called.
    public func run<Value: Sendable>(
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
