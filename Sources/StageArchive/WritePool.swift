import Glibc
import StageSystem

/// Batches on their way between the thread that reads an archive and the threads that write.
///
/// The reader hands over full batches and takes empty ones. When there is none it writes one itself
/// instead of waiting, so no processor idles whichever side is the slower one.
final class WritePool: Sendable {
    private struct State {
        var ready: [WriteBatch] = []
        var free: [WriteBatch] = []
        /// How many batches exist, wherever they are.
        var made = 0
        /// How many batches a thread is writing.
        var busy = 0
        var isClosed = false
        var failure: ArchiveError?
    }

    /// What the reader does next.
    enum Supply {
        case empty(WriteBatch)
        case toWrite(WriteBatch)
        case failed(ArchiveError)
    }

    private let monitor = Monitor(State())

    /// Batches in all: 8 MiB.
    private static let maximumBatches = (8 << 20) / WriteBatch.capacity

    /// Hands over a full batch.
    func submit(_ batch: WriteBatch) {
        monitor.change { $0.ready.append(batch) }
    }

    /// Returns an empty batch, or one that the caller has to write because there is no empty one.
    func supply() -> Supply {
        monitor.wait { state in
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

    /// Returns a batch that waits to be written, or `nil` when all of them have been.
    func remaining() throws(ArchiveError) -> WriteBatch? {
        let result: Result<WriteBatch?, ArchiveError> = monitor.wait { state in
            if let failure = state.failure { return .failure(failure) }
            if !state.ready.isEmpty {
                state.busy += 1
                return .success(state.ready.removeFirst())
            }
            return state.busy == 0 ? .success(nil) : nil
        }
        return try result.get()
    }

    /// Gives a batch back that was written, with what went wrong.
    func done(_ batch: WriteBatch, _ failure: ArchiveError?) {
        batch.clear()
        monitor.change { state in
            state.busy -= 1
            state.free.append(batch)
            if state.failure == nil { state.failure = failure }
        }
    }

    /// Gives a batch back that was not used.
    func giveBack(_ batch: WriteBatch) {
        batch.clear()
        monitor.change { $0.free.append(batch) }
    }

    /// Lets the writing threads end; what is still ready stays unwritten.
    func close() {
        monitor.change { $0.isClosed = true }
    }

    /// Writes batches until the pool is closed.
    func work(with writer: TreeWriter) {
        while let batch = next() {
            var failure: ArchiveError?
            do { try writer.write(batch) } catch { failure = error }
            done(batch, failure)
        }
    }

    private func next() -> WriteBatch? {
        let result: WriteBatch?? = monitor.wait { state in
            if state.isClosed || state.failure != nil { return .some(nil) }
            guard !state.ready.isEmpty else { return nil }
            state.busy += 1
            return .some(state.ready.removeFirst())
        }
        return result ?? nil
    }
}
