import Foundation
import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Gives each test a directory of its own to serve, with a few files in it.
struct TreeTrait: TestTrait, SuiteTrait, TestScoping {
    @TaskLocal private static var current: FilePath?

    let isRecursive = true

    /// The directory of the running test; files beside it are not served.
    static var path: FilePath {
        guard let current else { preconditionFailure("add the trait '.tree' to the test") }
        return current
    }

    /// Writes a file below the directory.
    static func write(_ name: String, _ content: [UInt8]) throws {
        try Data(content).write(to: URL(filePath: path.string).appending(path: name))
    }

    /// Truncates or extends a file in the directory in place.
    static func resize(_ name: String, to size: Int) throws {
        let file = try FileDescriptor.open(path.appending(name), .writeOnly)
        try file.closeAfter { try file.resize(to: Int64(size)) }
    }

    /// Renames a file in the directory over another.
    static func rename(_ name: String, to newName: String) throws {
        let (from, to) = (path.appending(name).string, path.appending(newName).string)
        guard unsafe Glibc.rename(from, to) == 0 else { throw Errno(rawValue: errno) }
    }

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        try await TemporaryDirectoryTrait.directory.provideScope(for: test, testCase: testCase) {
            guard let directory = TemporaryDirectory.current else { return try await function() }
            let tree = try Self.makeTree(in: URL(filePath: directory.path.string))
            try await Self.$current.withValue(FilePath(tree.path())) { try await function() }
        }
    }

    /// Creates the directory to serve, and the files beside it.
    private static func makeTree(in above: URL) throws -> URL {
        let files = FileManager.default
        let tree = above.appending(path: "tree")
        try files.createDirectory(
            at: tree.appending(path: "packs/.git"),
            withIntermediateDirectories: true
        )
        for (name, content) in [
            ("tree/digits.txt", "0123456789"), ("tree/empty", ""), ("tree/.hidden", "no"),
            ("tree/packs/.git/config", "no"), ("tree/packs/a <b>.zst", "zst"), ("secret", "no"),
        ] {
            try Data(content.utf8).write(to: above.appending(path: name))
        }
        for (name, target) in [
            ("inside", "packs/../digits.txt"), ("packs/up", "../digits.txt"), ("out", "../secret"),
            ("absolute", above.appending(path: "secret").path()), ("circle", "circle"),
            ("nowhere", "missing"), ("packs/out", "../.."),
        ] {
            try files.createSymbolicLink(
                atPath: tree.appending(path: name).path(),
                withDestinationPath: target
            )
        }
        return tree
    }
}

extension Trait where Self == TreeTrait {
    /// Gives each test a directory to serve, in ``TreeTrait/path``.
    static var tree: Self { Self() }
}
