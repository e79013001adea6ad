public import Foundation
import Glibc
import StageExtension
import StageSystem
import SystemPackage

// The names are Apple's.
// swift-format-ignore: AmbiguousTrailingClosureOverload
extension BADownloadManager {
    /// Calls `handler` while no other process that asks for the same is called.
    ///
    /// Waits until those before have ended; the second argument is the reason where the first is `false`.
    public func withExclusiveControl(_ handler: (Bool, (any Error)?) -> Void) {
        withExclusiveControl(beforeDate: .distantFuture, perform: handler)
    }

    /// Calls `handler` while no other process that asks for the same is called, or with `false` if that
    /// did not come to pass before `date`.
    public func withExclusiveControl(
        beforeDate date: Date,
        perform handler: (Bool, (any Error)?) -> Void
    ) {
        do {
            let file = try controlFile()
            while !Self.lock(file) {
                guard Date.now < date else { throw Self.others }
                Thread.sleep(forTimeInterval: Self.pause)
            }
            defer { Self.unlock(file) }
            handler(true, nil)
        } catch {
            handler(false, error)
        }
    }

    /// Returns what `body` does, which runs while no other process that asks for the same does.
    ///
    /// - Throws: ``BAError`` if the group is not known, what its folder refuses, and what `body` throws.
    public func withExclusiveControl<Value>(
        _ body: () async throws -> Value
    ) async throws -> Value {
        try await withExclusiveControl(before: .distantFuture, body)
    }

    /// Returns what `body` does, which runs while no other process that asks for the same does.
    ///
    /// - Throws: ``BAError`` if others were in control until `date` or the group is not known, what its folder
    ///   refuses, and what `body` throws.
    public func withExclusiveControl<Value>(
        before date: Date,
        _ body: () async throws -> Value
    ) async throws -> Value {
        let file = try controlFile()
        while !Self.lock(file) {
            guard Date.now < date else { throw Self.others }
            try await Task.sleep(for: .seconds(Self.pause))
        }
        defer { Self.unlock(file) }
        return try await body()
    }

    private static let others = BAError(.downloadAlreadyScheduled, "others are in control")
    /// The seconds between two attempts.
    private static let pause = 0.01
    /// The file in the group's shared folder that the process in control has locked (flock(2)).
    ///
    /// Its owner's alone: a user that may open it may lock it.
    private static let lockName: FilePath = ".BADownloadManager.lock"

    private static func lock(_ file: borrowing File) -> Bool {
        flock(file.descriptor.rawValue, LOCK_EX | LOCK_NB) == 0
    }

    /// Closing the file would leave the lock to a process that another thread has forked and that has not executed its
    /// program yet.
    private static func unlock(_ file: borrowing File) {
        flock(file.descriptor.rawValue, LOCK_UN)
    }

    /// Opens the file that is locked, in the shared folder of the group, which is made if need be.
    private func controlFile() throws -> File {
        if let request = request() {
            return try Directory.open(request.container)
                .file(updating: Self.lockName, exactly: .ownerReadWrite)
        }
        guard let group = applicationGroupIdentifier,
            let folder = FileManager.default
                .containerURL(forSecurityApplicationGroupIdentifier: group)
        else {
            throw BAError(
                .callerConnectionInvalid,
                "the application group is not known: set 'applicationGroupIdentifier'"
            )
        }
        return try Directory.make(FilePath(folder.path(percentEncoded: false)))
            .file(updating: Self.lockName, exactly: .ownerReadWrite)
    }
}
