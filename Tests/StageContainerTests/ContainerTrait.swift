import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Gives each test the path of a container, in a directory that is removed after the test.
struct ContainerTrait: TestTrait, SuiteTrait, TestScoping {
    let isRecursive = true

    /// The path of the running test.
    static var path: FilePath {
        guard let directory = TemporaryDirectory.current else {
            preconditionFailure("add the trait '.container' to the test")
        }
        return directory.path.appending("container")
    }

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        try await TemporaryDirectoryTrait.directory.provideScope(
            for: test,
            testCase: testCase,
            performing: function
        )
    }
}

extension Trait where Self == ContainerTrait {
    /// Gives each test a path for a container, in ``ContainerTrait/path``.
    static var container: Self { Self() }
}
