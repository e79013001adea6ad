/// Returns the result of `body`, or `nil` if a time passes first, in which case `body` is cancelled and waited for.
func withTimeLimit<Result: Sendable>(
    _ limit: Duration,
    _ body: @escaping @Sendable () async throws -> Result
) async throws -> Result? {
    try await withThrowingTaskGroup(of: Result?.self) { group in
        group.addTask { try await body() }
        group.addTask {
            // Cancelled where the result is there first.
            try? await Task.sleep(for: limit)
            return nil
        }
        defer { group.cancelAll() }
        return try await group.next() ?? nil
    }
}
