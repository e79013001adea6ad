public import Foundation
import StageExtension
import StageSystem
import SystemPackage

// The names are Apple's.
// swift-format-ignore: AmbiguousTrailingClosureOverload
extension BADownloadManager {
    /// Calls `handler` while this process has exclusive control among processes that request it.
    ///
    /// Unlike Apple's method, which returns at once, it calls `handler` on the caller's thread before it returns: it blocks
    /// the thread while another process or task has control. Those of one process that wait get it in the order of their calls.
    /// `handler` gets `false` and an error if control cannot be obtained. It must not request control itself: it would wait
    /// for its own end.
    public func withExclusiveControl(_ handler: (Bool, (any Error)?) -> Void) {
        withExclusiveControl(beforeDate: .distantFuture, perform: handler)
    }

    /// Calls `handler` while this process has exclusive control, or with `false` if it could not be obtained
    /// before `date`; the code of the error is then ``BAError/exclusiveControlNotAcquired``.
    public func withExclusiveControl(
        beforeDate date: Date,
        perform handler: (Bool, (any Error)?) -> Void
    ) {
        do {
            let (lock, queue) = try control()
            guard try queue.block(for: lock, within: .until(date)) else { throw Self.others }
            handler(true, nil)
            lock.release()
        } catch {
            handler(false, error)
        }
    }

    /// Runs `body` while this process has exclusive control, and returns its result.
    ///
    /// Waits while another process or task has control. Those of one process that wait get it in the order of their calls.
    /// `body` must not request control itself: it would wait for its own end.
    ///
    /// - Throws: ``BAError`` if the group is not known, an error if its directory cannot be used,
    ///   `CancellationError` if the task is cancelled while it waits, and the errors of `body`.
    public func withExclusiveControl<Value>(
        _ body: () async throws -> Value
    ) async throws -> Value {
        try await withExclusiveControl(before: .distantFuture, body)
    }

    /// Runs `body` while this process has exclusive control, and returns its result.
    ///
    /// - Throws: ``BAError`` if control could not be obtained before `date`
    ///   (``BAError/exclusiveControlNotAcquired``) or the group is not known, an error if its directory cannot
    ///   be used, `CancellationError` if the task is cancelled while it waits, and the errors of `body`.
    public func withExclusiveControl<Value>(
        before date: Date,
        _ body: () async throws -> Value
    ) async throws -> Value {
        let (lock, queue) = try await withBlockingThread { () throws -> Control in
            try self.control()
        }
        guard try await queue.wait(for: lock, within: .until(date)) else { throw Self.others }
        defer { lock.release() }
        return try await body()
    }

    private static let others = BAError(
        errorCode: BAError.exclusiveControlNotAcquired,
        message: "another process has exclusive control"
    )
    /// The lock file in the group's shared directory.
    ///
    /// Only its owner can open it: a user who can open it can lock it.
    private static let lockName: FilePath = ".BADownloadManager.lock"

    /// The lock file of a group, and the calls of this process that wait for it.
    private typealias Control = (lock: RetriedLock, queue: LockQueue)

    /// Opens the lock file in the group's shared directory, and creates both if they do not exist.
    private func control() throws -> Control {
        let directory: Directory
        if let request = request() {
            directory = try Directory.open(request.container)
        } else {
            guard let group = applicationGroupIdentifier,
                let folder = FileManager.default
                    .containerURL(forSecurityApplicationGroupIdentifier: group)
            else {
                throw BAError(
                    .callerConnectionNotAccepted,
                    message: "the application group is not known: set 'applicationGroupIdentifier'"
                )
            }
            directory = try Directory.make(FilePath(folder.path(percentEncoded: false)))
        }
        let file = try directory.file(updating: Self.lockName, exactly: .ownerReadWrite)
        let queue = try LockQueue.shared(for: file)
        return (RetriedLock(file), queue)
    }
}

extension Duration {
    /// Returns the time until a date, at most about 31 years; zero after it.
    fileprivate static func until(_ date: Date) -> Duration {
        .seconds(min(max(date.timeIntervalSinceNow, 0), 1_000_000_000))
    }
}
