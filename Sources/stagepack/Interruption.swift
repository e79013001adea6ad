import Dispatch
import Glibc
import StageSystem
import Synchronization

/// Cause of a command's early end.
enum Interruption: Sendable {
    /// A signal, from Ctrl-C or a service manager.
    case signal
    /// The time limit of `--deadline` has passed.
    case deadline
}

/// The deadline of the running command.
enum Deadline {
    /// The time at which the body of `withInterruption` is cancelled; `nil` without a deadline.
    @TaskLocal static var current: ContinuousClock.Instant?
}

/// Runs `body`, and cancels its task on SIGINT and SIGTERM, and at the deadline.
///
/// Returns the result of `body`, and the interruption, if any. A signal that comes a second later or more ends the
/// program at once, which is safe, since files on disk are consistent at any time. Earlier ones count as the first:
/// timeout(1) sends its signal to the process and to its group.
func withInterruption<Result: Sendable>(
    after deadline: Duration?,
    _ body: @escaping @Sendable () async -> Result
) async -> (Result, Interruption?) {
    let (interruptions, continuation) = AsyncStream.makeStream(of: Interruption.self)
    let sources = [SIGINT, SIGTERM].map { number in
        signal(number, SIG_IGN)
        let source = DispatchSource.makeSignalSource(
            signal: number,
            queue: .global(qos: .userInteractive)
        )
        source.setEventHandler {
            continuation.yield(.signal)
            // Threads of this queue are free when those of the default one are all busy.
            DispatchQueue.global(qos: .userInteractive).asyncAfter(deadline: .now() + 1) {
                signal(number, SIG_DFL)
            }
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
                try? await Task.sleep(for: (end - .now).sleepable)
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
