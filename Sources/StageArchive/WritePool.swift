import Glibc
import StageSystem

/// The queue of batches between the thread that reads an archive and the threads that write.
///
/// The reader submits full batches and takes empty ones. If none is empty it writes one itself instead of
/// waiting, so all processors stay busy.
final class WritePool: Sendable {
    private struct State {
        var ready: [WriteBatch] = []
        var free: [WriteBatch] = []
        /// The number of existing batches.
        var made = 0
        /// The number of batches that are being written.
        var busy = 0
        var isClosed = false
        var failure: ArchiveError?
    }

    /// The reader's next step.
    enum Supply {
        case empty(WriteBatch)
        case toWrite(WriteBatch)
        case failed(ArchiveError)
    }

    private let sharedState = ConditionVariable(State())

    /// The maximum number of batches: together they take 8 MiB.
    private static let maximumBatches = (8 << 20) / WriteBatch.capacity

    /// Submits a full batch.
    func submit(_ batch: WriteBatch) {
        sharedState.change { $0.ready.append(batch) }
    }

    /// Returns an empty batch, or a full one to write if there is none.
    func supply() -> Supply {
        sharedState.wait { state in
            if let failure = state.failure { return .failed(failure) }
            if let batch = state.free.popLast() { return .empty(batch) }
            if state.made < Self.maximumBatches {
                state.made += 1
                return .empty(WriteBatch())
            }
            guard !state.ready.isEmpty else { return nil }
            state.busy += 1
            return .toWrite(state.ready.removeFirst())
        }
    }

    /// Returns a batch that is not written yet, or `nil` when all are written.
    func remaining() throws(ArchiveError) -> WriteBatch? {
        let result: Result<WriteBatch?, ArchiveError> = sharedState.wait { state in
            if let failure = state.failure { return .failure(failure) }
            if !state.ready.isEmpty {
                state.busy += 1
                return .success(state.ready.removeFirst())
            }
            return state.busy == 0 ? .success(nil) : nil
        }
        return try result.get()
    }

    /// Returns a written batch to the pool, with its error.
    func done(_ batch: WriteBatch, failure: ArchiveError?) {
        batch.clear()
        sharedState.change { state in
            state.busy -= 1
            state.free.append(batch)
            if state.failure == nil { state.failure = failure }
        }
    }

    /// Stops the worker threads; batches that are not written yet are discarded.
    func close() {
        sharedState.change { $0.isClosed = true }
    }

    /// Writes batches until the pool is closed.
    func work(with writer: TreeWriter) {
        while let batch = next() {
            var failure: ArchiveError?
            do { try writer.write(batch) } catch { failure = error }
            done(batch, failure: failure)
        }
    }

    private func next() -> WriteBatch? {
        let result: WriteBatch?? = sharedState.wait { state in
            if state.isClosed || state.failure != nil { return .some(nil) }
            guard !state.ready.isEmpty else { return nil }
            state.busy += 1
            return .some(state.ready.removeFirst())
        }
        return result ?? nil
    }
}
