import StageModel
import Synchronization

/// The notes on an upload that have to be on disk before more of its body is sent, in the order in which they arise.
final class UploadLedger: Sendable {
    private struct State {
        var resource: UploadResource?
        /// Whether the last bytes were given leave to be sent.
        var isWhole = false
        var pending = 0
        var last: Task<Void, Never>?
        var failure: TransferError?
    }

    private let state: Mutex<State>
    private let keep: (@Sendable (UploadResource?) async throws(TransferError) -> Void)?
    private let willComplete: (@Sendable () async throws(TransferError) -> Void)?

    /// Creates the ledger of an upload.
    init(_ request: UploadRequest) {
        state = Mutex(State())
        keep = request.keepResource
        willComplete = request.willComplete
    }

    /// Whether the body has to wait.
    var isWriting: Bool { state.withLock { $0.pending > 0 } }

    /// The error that kept a note from being written down, which ends the upload.
    var failure: TransferError? { state.withLock { $0.failure } }

    /// Takes note of the resource at which the upload begins, which is written down.
    func begin(at resource: UploadResource?) { state.withLock { $0.resource = resource } }

    /// Begins to write down where the upload resumes; `nil` stands for nowhere, where no byte is of an upload that
    /// may be complete.
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

    /// Adds an entry, which follows those before it.
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
        state.withLock { state in
            state.pending -= 1
            state.failure = state.failure ?? failure
        }
    }

    /// Waits until everything is written down.
    func settle() async {
        while let last = state.withLock({ $0.pending > 0 ? $0.last : nil }) { await last.value }
    }

    /// Writes down that the last bytes are about to be sent, at a resource or without any.
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
