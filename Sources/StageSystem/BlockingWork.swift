import Dispatch

/// Runs work that blocks (a lock, a digest, a synchronization) on a thread of its own, so that the
/// threads that run Swift's tasks stay free.
///
/// The work is not interrupted when the task is cancelled.
public func withBlockingThread<Value: Sendable, Failure: Error>(
    _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
    let result: Result<Value, Failure> = await withCheckedContinuation { continuation in
        DispatchQueue.global().async {
            continuation.resume(returning: Result { () throws(Failure) in try body() })
        }
    }
    return try result.get()
}
