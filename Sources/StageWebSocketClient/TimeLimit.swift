import StageSystem

/// Returns the result of `body`; after the time limit, cancels `body`, waits for it and returns `nil`.
///
/// The time in which the machine is suspended does not count: the server gets the whole limit to answer.
func withTimeLimit<Result: Sendable>(
    _ limit: Duration,
    body: @escaping @Sendable () async throws -> Result
) async throws -> Result? {
    try await withTimeLimit(limit, since: { 0 }, body: body)
}

/// Returns the result of `body`; after a time limit without progress, cancels `body`, waits for it and returns `nil`.
///
/// `progress` is read at the end of each limit: a change starts another one. The time in which the machine is suspended does not
/// count.
func withTimeLimit<Result: Sendable>(
    _ limit: Duration,
    since progress: @escaping @Sendable () -> Int,
    body: @escaping @Sendable () async throws -> Result
) async throws -> Result? {
    try await withSleep(
        {
            var before = progress()
            while true {
                try await Task.sleep(for: limit.sleepable, clock: .suspending)
                let now = progress()
                if now == before { return }
                before = now
            }
        },
        body: body
    )
}

/// Returns the result of `body`; at a deadline, which suspension of the machine does not postpone, cancels `body`, waits for it and
/// returns `nil`.
func withDeadline<Result: Sendable>(
    _ deadline: ContinuousClock.Instant,
    body: @escaping @Sendable () async throws -> Result
) async throws -> Result? {
    try await withSleep(
        { try await Task.sleep(until: deadline, clock: .continuous) },
        body: body
    )
}

/// Returns the result of `body`; if `sleep` returns first, cancels `body`, waits for it and returns `nil`.
private func withSleep<Result: Sendable>(
    _ sleep: @escaping @Sendable () async throws -> Void,
    body: @escaping @Sendable () async throws -> Result
) async throws -> Result? {
    try await withThrowingTaskGroup(of: Result?.self) { group in
        group.addTask { try await body() }
        group.addTask {
            // Cancelled if the result arrives first.
            try? await sleep()
            return nil
        }
        defer { group.cancelAll() }
        return try await group.next() ?? nil
    }
}
