package import Testing

/// Waits until `condition` holds; a test that waits for longer than `limit` fails.
///
/// The limit is five minutes, since hundreds of processes of other tests may run before.
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

/// Waits until `value` returns a value, and returns it; a test that waits for longer than `limit` fails.
///
/// This is for states that may pass: a second read after ``poll(_:within:sourceLocation:_:)`` may find the next state.
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

/// Waits until `value` stays the same for `time`, and returns it, to observe that nothing more happens.
///
/// A test that waits for longer than `limit` fails. On a busy machine `value` may only pause, so it must be compared with a limit and
/// not with the expected final value.
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
