package import Testing

/// Waits until `condition` holds; a test that waits for longer than `limit` fails.
///
/// Five minutes, since hundreds of processes of other tests may have their turn first.
package func poll(
    _ comment: Comment? = nil,
    within limit: Duration = .seconds(300),
    sourceLocation: SourceLocation = #_sourceLocation,
    _ condition: () async throws -> Bool
) async throws {
    try await pollForValue(comment, within: limit, sourceLocation: sourceLocation) {
        try await condition() ? () : nil
    }
}

/// Waits until `value` returns a value, and returns that one; a test that waits for longer than `limit` fails.
///
/// For a state that may pass: a second read after ``poll(_:within:sourceLocation:_:)`` may find the next state.
package func pollForValue<Value>(
    _ comment: Comment? = nil,
    within limit: Duration = .seconds(300),
    sourceLocation: SourceLocation = #_sourceLocation,
    _ value: () async throws -> Value?
) async throws -> Value {
    let clock = ContinuousClock()
    let deadline = clock.now + limit
    var pause = Duration.milliseconds(2)
    while true {
        if let value = try await value() { return value }
        try #require(clock.now < deadline, comment, sourceLocation: sourceLocation)
        try await Task.sleep(for: pause)
        // It may be a request to a daemon, which other tests beside this one need the processors for.
        pause = min(pause * 1.25, .milliseconds(50))
    }
}
