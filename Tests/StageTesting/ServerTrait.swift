package import Testing

/// Runs each test with a server of its own.
package struct ServerTrait: TestTrait, SuiteTrait, TestScoping {
    /// The tests of a suite inherit the trait.
    package let isRecursive = true

    /// Starts a server, runs the test and stops the server.
    package func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        let server = try TestServer()
        defer { server.stop() }
        try await TestServer.$running.withValue(server) { try await function() }
    }
}

extension Trait where Self == ServerTrait {
    /// Gives each test a server of its own, in ``TestServer/current``.
    package static var server: Self { Self() }
}
