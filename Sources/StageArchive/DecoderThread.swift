import StageModel
import StageSystem

/// A confined thread of this process that does one piece of work, and passes on what it says.
///
/// What runs on a confined thread must not call back: a callback may wake a pool of threads, and a
/// thread that the pool then makes would be confined as well, for as long as the process lives. So the
/// calling thread waits, and does the callbacks.
final class DecoderThread<Value: Sendable>: Sendable {
    private struct State {
        var progress: ByteCount?
        var result: Result<Value, ArchiveError>?
    }

    private enum Note {
        case progress(ByteCount)
        case result(Result<Value, ArchiveError>)
    }

    private let monitor = Monitor(State())
    private let isCancelled: @Sendable () -> Bool
    private let progress: @Sendable (ByteCount) -> Void

    /// Creates a thread that is not started; `progress` is called by the thread that waits for it.
    init(
        isCancelled: @escaping @Sendable () -> Bool,
        progress: @escaping @Sendable (ByteCount) -> Void = { _ in }
    ) {
        self.isCancelled = isCancelled
        self.progress = progress
    }

    /// Does `work` on a thread that ends with it, and waits for its result.
    ///
    /// - Throws: ``ArchiveError/notConfined(_:)`` in a process of root or one with capabilities: a
    ///   thread that a decoder was tricked on could make the others act for it.
    func run(
        _ work: @escaping @Sendable (UnpackEvents) throws(ArchiveError) -> Value
    ) throws(ArchiveError) -> Value {
        guard !Confinement.isPrivileged else { throw .notConfined(.ownProcess) }
        UTF8Locale.prepare()
        let thread = try ArchiveError.wrapping { () throws(FileError) in
            try SystemThread(name: "stage-unpack") { [monitor, isCancelled] in
                let events = UnpackEvents(
                    progress: { bytes in monitor.change { $0.progress = bytes } },
                    isCancelled: isCancelled
                )
                let result: Result<Value, ArchiveError>
                do throws(ArchiveError) {
                    result = .success(try work(events))
                } catch {
                    result = .failure(error)
                }
                monitor.change { $0.result = result }
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
        monitor.wait { state in
            if let bytes = state.progress.take() { return .progress(bytes) }
            return state.result.map { .result($0) }
        }
    }
}
