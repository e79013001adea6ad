import Dispatch
import Glibc
import Synchronization

/// Why a command was told to stop before it had ended.
enum Interruption: Sendable {
    /// A signal: Ctrl-C, or a service manager.
    case signal
    /// The time that `--deadline` gives was up.
    case deadline
}

/// The deadline of the command that runs.
enum Deadline {
    /// The instant at which the body of `withInterruption` is cancelled; `nil` without a deadline.
    @TaskLocal static var current: ContinuousClock.Instant?
}

/// Runs `body` and cancels its task on SIGINT and SIGTERM, and when the deadline has passed.
///
/// Returns what `body` returned, and what interrupted it, if anything did. A second signal ends the
/// program at once: what is on disk is safe at any instant.
func withInterruption<Result: Sendable>(
    after deadline: Duration?,
    _ body: @escaping @Sendable () async -> Result
) async -> (Result, Interruption?) {
    let (interruptions, continuation) = AsyncStream.makeStream(of: Interruption.self)
    let sources = [SIGINT, SIGTERM].map { number in
        signal(number, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
        source.setEventHandler {
            continuation.yield(.signal)
            signal(number, SIG_DFL)
        }
        source.resume()
        return source
    }
    defer { for source in sources { source.cancel() } }
    return await withTaskGroup(of: Ending<Result>.self) { group in
        let end = deadline.map { ContinuousClock.now + $0 }
        group.addTask { .ended(await Deadline.$current.withValue(end) { await body() }) }
        group.addTask {
            for await interruption in interruptions { return .interrupted(interruption) }
            return .stopped
        }
        if let end {
            group.addTask {
                // Cancelled: the body ended in time.
                try? await Task.sleep(until: end, clock: .continuous)
                return Task.isCancelled ? .stopped : .interrupted(.deadline)
            }
        }
        var cause: Interruption?
        while let ending = await group.next() {
            switch ending {
            case .ended(let result):
                group.cancelAll()
                return (result, cause)
            case .interrupted(let interruption):
                cause = cause ?? interruption
                group.cancelAll()
            case .stopped:
                break
            }
        }
        preconditionFailure("the body always ends")
    }
}

private enum Ending<Result: Sendable>: Sendable {
    case ended(Result)
    case interrupted(Interruption)
    case stopped
}
