public import Testing

/// Waits until `condition` holds; a test that waits for longer than `limit` fails.
///
/// Five minutes, since hundreds of processes of other tests may have their turn first.
public func poll(
    _ comment: Comment? = nil,
    within limit: Duration = .seconds(300),
    sourceLocation: SourceLocation = #_sourceLocation,
    _ condition: () async throws -> Bool
) async throws {
    let clock = ContinuousClock()
    let deadline = clock.now + limit
    var pause = Duration.milliseconds(2)
    while try await !condition() {
        try #require(clock.now < deadline, comment, sourceLocation: sourceLocation)
        try await Task.sleep(for: pause)
        // A condition may be a request to a daemon, which other tests beside this one need the processors for.
        pause = min(pause * 1.25, .milliseconds(50))
    }
}
