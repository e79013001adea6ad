import StageModel
import StageSystem

/// A confined thread of this process that decodes one archive; the calling thread makes its callbacks.
///
/// A confined thread must not make callbacks: one may wake a thread pool, and a thread that the pool creates
/// then would be confined too, for the lifetime of the process.
final class DecoderThread<Value: Sendable>: Sendable {
    private struct State {
        var progress: ByteCount?
        var result: Result<Value, ArchiveError>?
    }

    private enum Note {
        case progress(ByteCount)
        case result(Result<Value, ArchiveError>)
    }

    private let sharedState = ConditionVariable(State())
    private let isCancelled: @Sendable () -> Bool
    private let progress: @Sendable (ByteCount) -> Void

    /// Creates a thread that is not started yet; the waiting thread calls `progress`.
    init(
        isCancelled: @escaping @Sendable () -> Bool,
        progress: @escaping @Sendable (ByteCount) -> Void = { _ in }
    ) {
        self.isCancelled = isCancelled
        self.progress = progress
    }

    /// Runs `work` on a new thread, and waits for its result.
    ///
    /// - Throws: ``ArchiveError/notConfined(_:)`` in a privileged process: an exploited decoder could make
    ///   the other, unconfined threads act for it.
    func run(
        _ work: @escaping @Sendable (UnpackEvents) throws(ArchiveError) -> Value
    ) throws(ArchiveError) -> Value {
        guard !Confinement.isPrivileged else { throw .notConfined(.ownProcess) }
        UTF8Locale.prepare()
        let thread = try ArchiveError.wrapping { () throws(FileError) in
            try SystemThread(name: "stage-unpack") { [sharedState, isCancelled] in
                let events = UnpackEvents(
                    progress: { bytes in sharedState.change { $0.progress = bytes } },
                    isCancelled: isCancelled
                )
                let result: Result<Value, ArchiveError>
                do throws(ArchiveError) {
                    result = .success(try work(events))
                } catch {
                    result = .failure(error)
                }
                sharedState.change { $0.result = result }
            }
        }
        while true {
            switch next() {
            case .progress(let bytes): progress(bytes)
            case .result(let result):
                thread.join()
                return try result.get()
            }
        }
    }

    private func next() -> Note {
        sharedState.wait { state in
            if let bytes = state.progress.take() { return .progress(bytes) }
            return state.result.map { .result($0) }
        }
    }
}
