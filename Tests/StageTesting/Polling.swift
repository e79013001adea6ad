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
        // The condition may be a request to a daemon, for which other tests need the processors.
        pause = min(pause * 1.25, .milliseconds(50))
    }
}

/// Waits until `value` stays the same for `time`, and returns it: that nothing more happens takes some time to see.
///
/// A test that waits for longer than `limit` fails. On a busy machine `value` may only pause, so it is to be compared with a limit and
/// not with what was expected in the end.
@discardableResult
package func pollUntilUnchanged<Value: Equatable>(
    for time: Duration = .milliseconds(300),
    _ comment: Comment? = nil,
    within limit: Duration = .seconds(300),
    sourceLocation: SourceLocation = #_sourceLocation,
    _ value: () async throws -> Value
) async throws -> Value {
    let clock = ContinuousClock()
    let deadline = clock.now + limit
    var (last, since) = (try await value(), clock.now)
    while true {
        try await Task.sleep(for: .milliseconds(10))
        let now = try await value()
        if now != last {
            (last, since) = (now, clock.now)
        } else if clock.now - since >= time {
            return last
        }
        try #require(clock.now < deadline, comment, sourceLocation: sourceLocation)
    }
}
