import StageModel
import Synchronization

/// Stores the state of an upload, in order; the body waits until pending writes have finished.
final class UploadStateWriter: Sendable {
    private struct State {
        var resource: UploadResource?
        /// `true` once the last bytes were permitted.
        var isWhole = false
        var pending = 0
        var last: Task<Void, Never>?
        var failure: TransferError?
    }

    private let state: Mutex<State>
    private let keep: (@Sendable (UploadResource?) async throws(TransferError) -> Void)?
    private let willComplete: (@Sendable () async throws(TransferError) -> Void)?
    private let wake: @Sendable () -> Void

    /// Creates the writer for an upload, which calls `wake` when the body need no longer wait.
    init(_ request: UploadRequest, wake: @escaping @Sendable () -> Void) {
        state = Mutex(State())
        self.wake = wake
        keep = request.keepResource
        willComplete = request.willComplete
    }

    /// `true` while the body has to wait for a write.
    var isWriting: Bool { state.withLock { $0.pending > 0 } }

    /// First error of a write, which ends the upload.
    var failure: TransferError? { state.withLock { $0.failure } }

    /// Sets the resource at which the upload begins, which is already stored.
    func begin(at resource: UploadResource?) { state.withLock { $0.resource = resource } }

    /// Queues storing the resource at which the upload resumes.
    ///
    /// With `nil`, the upload starts again at its first byte, and does not count as possibly complete any more.
    func set(_ resource: UploadResource?) {
        append { [self] () async throws(TransferError) in
            let resource = state.withLock { state in
                state.resource = resource
                if resource == nil { state.isWhole = false }
                if state.isWhole { state.resource?.mayBeComplete = true }
                return state.resource
            }
            try await keep?(resource)
        }
    }

    /// Queues a write after the previous ones.
    private func append(_ write: @escaping @Sendable () async throws(TransferError) -> Void) {
        state.withLock { state in
            state.pending += 1
            let previous = state.last
            state.last = Task {
                await previous?.value
                var failure: TransferError?
                do throws(TransferError) {
                    try await write()
                } catch {
                    failure = error
                }
                end(failure)
            }
        }
    }

    private func end(_ failure: TransferError?) {
        let isIdle = state.withLock { state in
            state.pending -= 1
            state.failure = state.failure ?? failure
            return state.pending == 0
        }
        if isIdle { wake() }
    }

    /// Waits until all writes have finished.
    func settle() async {
        while let last = state.withLock({ $0.pending > 0 ? $0.last : nil }) { await last.value }
    }

    /// Stores that the last bytes are about to be sent, with or without a resource.
    func allowLastBytes() async throws(TransferError) {
        append { [self] () async throws(TransferError) in
            let resource = state.withLock { state in
                state.isWhole = true
                state.resource?.mayBeComplete = true
                return state.resource
            }
            if let resource, let keep { return try await keep(resource) }
            try await willComplete?()
        }
        await settle()
        if let failure { throw failure }
    }
}
