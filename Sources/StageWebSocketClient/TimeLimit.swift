/// Returns the result of `body`; after the time limit, cancels `body`, waits for it and returns `nil`.
func withTimeLimit<Result: Sendable>(
    _ limit: Duration,
    body: @escaping @Sendable () async throws -> Result
) async throws -> Result? {
    try await withThrowingTaskGroup(of: Result?.self) { group in
        group.addTask { try await body() }
        group.addTask {
            // Cancelled if the result arrives first.
            try? await Task.sleep(for: limit)
            return nil
        }
        defer { group.cancelAll() }
        return try await group.next() ?? nil
    }
}
