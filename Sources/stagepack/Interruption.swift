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
    ///
    /// Suspension of the machine does not postpone it.
    @TaskLocal static var current: ContinuousClock.Instant?
}

/// Runs `body`, and cancels its task on SIGINT and SIGTERM, and at the deadline.
///
/// Returns the result of `body`, and the interruption, if any. A signal that comes a second later or more ends the
/// program at once, which is safe, since files on disk are consistent at any time. Earlier ones count as the first:
/// timeout(1) sends its signal to the process and to its group. After a signal, later bodies are cancelled at their start.
func withInterruption<Result: Sendable>(
    after deadline: Duration?,
    _ body: @escaping @Sendable () async -> Result
) async -> (Result, Interruption?) {
    let (interruptions, continuation) = AsyncStream.makeStream(of: Interruption.self)
    let scope = InterruptingSignals.shared.begin(continuation)
    defer { InterruptingSignals.shared.end(scope) }
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

/// The signals that interrupt a command, from the first use on.
///
/// The sources are never cancelled: libdispatch gives the signal its default action, which ends the process, some time after it was asked
/// to cancel a source, also if another source for the signal exists by then.
final class InterruptingSignals: Sendable {
    static let shared = InterruptingSignals()

    private struct State {
        var arrived: Set<CInt> = []
        var lastScope = 0
        var scopes: [Int: AsyncStream<Interruption>.Continuation?] = [:]
    }

    private let state = Mutex(State())
    private let sources: Mutex<[any DispatchSourceSignal]>

    private init() {
        sources = Mutex(
            [SIGINT, SIGTERM].map { number in
                let source = DispatchSource.makeSignalSource(
                    signal: number,
                    queue: .global(qos: .userInteractive)
                )
                source.setEventHandler { InterruptingSignals.shared.arrive(number) }
                source.resume()
                return source
            }
        )
    }

    /// Begins a scope in which a signal does not end the process but goes to the subscriber, if there is one: at once, if a signal has
    /// arrived before.
    ///
    /// - Returns: The number of the scope, for ``end(_:)``.
    func begin(_ subscriber: AsyncStream<Interruption>.Continuation? = nil) -> Int {
        state.withLock { state in
            if !state.arrived.isEmpty { subscriber?.yield(.signal) }
            state.lastScope += 1
            state.scopes[state.lastScope] = .some(subscriber)
            return state.lastScope
        }
    }

    /// Ends a scope.
    func end(_ scope: Int) { state.withLock { _ = $0.scopes.removeValue(forKey: scope) } }

    /// Returns whether a signal has arrived.
    func hasArrived(_ number: CInt) -> Bool { state.withLock { $0.arrived.contains(number) } }

    private func arrive(_ number: CInt) {
        let isExpected = state.withLock { state in
            // After the first signal, the command prints how it ends.
            let isExpected = !state.arrived.isEmpty || !state.scopes.isEmpty
            state.arrived.insert(number)
            for subscriber in state.scopes.values { subscriber?.yield(.signal) }
            return isExpected
        }
        guard isExpected else {
            signal(number, SIG_DFL)
            kill(getpid(), number)
            return
        }
        // Threads of this queue are free when those of the default one are all busy.
        DispatchQueue.global(qos: .userInteractive).asyncAfter(deadline: .now() + 1) {
            for number in [SIGINT, SIGTERM] { signal(number, SIG_DFL) }
        }
    }
}
