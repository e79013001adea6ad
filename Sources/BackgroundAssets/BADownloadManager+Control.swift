public import Foundation
import StageExtension
import StageSystem
import SystemPackage

// The names are Apple's.
// swift-format-ignore: AmbiguousTrailingClosureOverload
extension BADownloadManager {
    /// Calls `handler` while this process has exclusive control among processes that request it.
    ///
    /// Waits for earlier processes; `handler` gets `false` and an error if control cannot be obtained.
    public func withExclusiveControl(_ handler: (Bool, (any Error)?) -> Void) {
        withExclusiveControl(beforeDate: .distantFuture, perform: handler)
    }

    /// Calls `handler` while this process has exclusive control, or with `false` if it could not be obtained
    /// before `date`.
    public func withExclusiveControl(
        beforeDate date: Date,
        perform handler: (Bool, (any Error)?) -> Void
    ) {
        do {
            while true {
                if let lock = try controlLock() {
                    handler(true, nil)
                    extendLifetime(lock)
                    return
                }
                guard Date.now < date else { throw Self.others }
                Thread.sleep(forTimeInterval: Self.pause)
            }
        } catch {
            handler(false, error)
        }
    }

    /// Runs `body` while this process has exclusive control, and returns its result.
    ///
    /// - Throws: ``BAError`` if the group is not known, an error if its directory cannot be used, and the
    ///   errors of `body`.
    public func withExclusiveControl<Value>(
        _ body: () async throws -> Value
    ) async throws -> Value {
        try await withExclusiveControl(before: .distantFuture, body)
    }

    /// Runs `body` while this process has exclusive control, and returns its result.
    ///
    /// - Throws: ``BAError`` if control could not be obtained before `date` or the group is not known, an
    ///   error if its directory cannot be used, and the errors of `body`.
    public func withExclusiveControl<Value>(
        before date: Date,
        _ body: () async throws -> Value
    ) async throws -> Value {
        while true {
            if let lock = try controlLock() {
                defer { extendLifetime(lock) }
                return try await body()
            }
            guard Date.now < date else { throw Self.others }
            try await Task.sleep(for: .seconds(Self.pause))
        }
    }

    private static let others = BAError(
        .downloadAlreadyScheduled,
        message: "another process has exclusive control"
    )
    /// The polling interval in seconds.
    private static let pause = 0.01
    /// The lock file in the group's shared directory.
    ///
    /// Only its owner can open it: a user who can open it can lock it.
    private static let lockName: FilePath = ".BADownloadManager.lock"

    /// Takes the lock, or returns `nil` if another process or task holds it.
    private func controlLock() throws -> FileLock? {
        try FileLock.attempt(try controlFile(), mode: .exclusive)
    }

    /// Opens the lock file in the group's shared directory, and creates both if they do not exist.
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
                message: "the application group is not known: set 'applicationGroupIdentifier'"
            )
        }
        return try Directory.make(FilePath(folder.path(percentEncoded: false)))
            .file(updating: Self.lockName, exactly: .ownerReadWrite)
    }
}
