import FoundationEssentials
import Glibc
package import StageSystem
import SystemPackage
package import Testing

/// A directory of the running test's own, removed with everything in it when the test ends.
package struct TemporaryDirectory: Sendable {
    /// The directory of the running test.
    @TaskLocal package static var current: Directory?

    /// The directory of the running test, which must have the trait ``Testing/Trait/directory``.
    package static func required() throws -> Directory {
        try #require(current, "the test needs the trait '.directory'")
    }
}

/// Runs each test with a directory of its own.
package struct TemporaryDirectoryTrait: TestTrait, SuiteTrait, TestScoping {
    /// Tests inside of a suite each get their own directory.
    package let isRecursive = true
    /// `true` if the directory will hold more than about ten megabytes.
    let isLarge: Bool

    /// A directory in memory, if the system has one: tests make and remove thousands of small files.
    private var path: FilePath {
        guard !isLarge else { return "/var/tmp" }
        let memory = try? Directory.open("/dev").status("shm")
        return memory?.kind == .directory ? "/dev/shm" : "/tmp"
    }

    /// Opens this user's directory for directories of tests, in which no other user may replace them.
    private func parent() throws -> Directory {
        let parent = try Directory.open(path)
            .makeDirectory(FilePath("stagepack-tests-\(geteuid())"))
        let status = try parent.status()
        try #require(
            status.owner == geteuid() && status.mode & 0o022 == 0,
            "another user may change '\(parent.path)': remove it"
        )
        return parent
    }

    /// Makes the directory, runs the test, and removes the directory on every exit.
    package func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        let parent = try parent()
        let name = "\(getpid())-\(UInt64.random(in: .min ... .max))"
        let component = try #require(FilePath.Component(name))
        let directory = try parent.makeDirectory(FilePath(component))
        try directory.markAsUsed()
        do {
            try await TemporaryDirectory.$current.withValue(directory) { try await function() }
        } catch {
            try await remove(component, from: parent)
            throw error
        }
        try await remove(component, from: parent)
    }

    /// Removes a directory into which processes may still write that were just told to end.
    private func remove(_ name: FilePath.Component, from parent: Directory) async throws {
        // This is many times as fast as the loop below in a debug build; the loop removes what this leaves.
        try? FileManager.default.removeItem(atPath: parent.path.appending(name).string)
        for _ in 0..<6000 {
            guard try !removes(name, from: parent) else { return }
            try await Task.sleep(for: .milliseconds(50))
        }
        try parent.removeTree(name)
    }

    /// Removes a directory; returns `false` if another process has created an entry in it meanwhile.
    private func removes(
        _ name: FilePath.Component,
        from parent: Directory
    ) throws(FileError) -> Bool {
        do throws(FileError) {
            try parent.removeTree(name)
            return true
        } catch {
            guard error.errno == .directoryNotEmpty else { throw error }
            return false
        }
    }
}

extension Directory {
    /// Locks the directory while it is open: `Scripts/test-leftovers` does not remove locked directories.
    package func markAsUsed() throws {
        guard flock(descriptor.rawValue, LOCK_SH) == 0 else { throw Errno(rawValue: errno) }
    }
}

extension Trait where Self == TemporaryDirectoryTrait {
    /// Gives each test a directory of its own, in ``TemporaryDirectory/current``.
    package static var directory: Self { Self(isLarge: false) }

    /// Gives each test a directory of its own on a disk, in ``TemporaryDirectory/current``.
    package static var largeDirectory: Self { Self(isLarge: true) }
}
