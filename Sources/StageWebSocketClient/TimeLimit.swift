import StageSystem

/// Returns the result of `body`; after the time limit, cancels `body`, waits for it and returns `nil`.
func withTimeLimit<Result: Sendable>(
    _ limit: Duration,
    body: @escaping @Sendable () async throws -> Result
) async throws -> Result? {
    try await withTimeLimit(limit, since: { 0 }, body: body)
}

/// Returns the result of `body`; after a time limit without progress, cancels `body`, waits for it and returns `nil`.
///
/// `progress` is read at the end of each limit: a change starts another one.
func withTimeLimit<Result: Sendable>(
    _ limit: Duration,
    since progress: @escaping @Sendable () -> Int,
    body: @escaping @Sendable () async throws -> Result
) async throws -> Result? {
    try await withThrowingTaskGroup(of: Result?.self) { group in
        group.addTask { try await body() }
        group.addTask {
            var before = progress()
            while true {
                // Cancelled if the result arrives first.
                do { try await Task.sleep(for: limit.sleepable) } catch { return nil }
                let now = progress()
                if now == before { return nil }
                before = now
            }
        }
        defer { group.cancelAll() }
        return try await group.next() ?? nil
    }
}
