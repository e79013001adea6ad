import Foundation
import SystemPackage
import Testing

/// Gives each test a path for a container of its own, in a directory that goes with the test.
struct ContainerTrait: TestTrait, SuiteTrait, TestScoping {
    @TaskLocal private static var current: FilePath?

    let isRecursive = true

    /// The path of the running test.
    static var path: FilePath {
        guard let current else { preconditionFailure("add the trait '.container' to the test") }
        return current
    }

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        let directory = FileManager.default.temporaryDirectory
            .appending(path: "stagepack-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        let path = FilePath(directory.path()).appending("container")
        try await Self.$current.withValue(path) { try await function() }
    }
}

extension Trait where Self == ContainerTrait {
    /// Gives each test a path for a container, in ``ContainerTrait/path``.
    static var container: Self { Self() }
}
