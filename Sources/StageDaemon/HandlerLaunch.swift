import FoundationEssentials
import StageControl
import StageSystem
import Synchronization

/// Running handler with its time limit.
final class HandlerLaunch: Sendable {
    let session: Int64
    let identifier: String
    let user: UInt32
    /// Groups that the handler may have.
    let rights: SessionRights
    let handler: LaunchHandler
    let token: String
    /// Time at which the handler is stopped, by a clock that stops with the handler while the machine is suspended.
    private let deadline: Mutex<SuspendingClock.Instant>
    private let signal = StopSwitch()

    init(
        session: Int64,
        identifier: String,
        user: UInt32,
        rights: SessionRights,
        handler: LaunchHandler,
        token: String,
        timeLimit: Double
    ) {
        self.session = session
        self.identifier = identifier
        self.user = user
        self.rights = rights
        self.handler = handler
        self.token = token
        deadline = Mutex(.now + .seconds(timeLimit))
    }

    /// Extends the time limit to `seconds` from now.
    func extend(by seconds: Double) {
        deadline.withLock { $0 = max($0, .now + .seconds(seconds)) }
    }

    /// Stops the handler.
    func stop() { signal.stop() }

    /// Runs `body`; cancels its task at the time limit, or when ``stop()`` is called.
    func run<Value: Sendable>(_ body: @escaping @Sendable () async -> Value) async -> Value {
        await signal.run {
            await withTaskGroup(of: Value?.self) { group in
                group.addTask { await body() }
                group.addTask {
                    await self.waitForDeadline()
                    return nil
                }
                while let result = await group.next() {
                    group.cancelAll()
                    if let result { return result }
                }
                preconditionFailure("a body returns")
            }
        }
    }

    private func waitForDeadline() async {
        while true {
            let until = deadline.withLock { $0 }
            guard until > .now else { return }
            // Cancelled: the handler has ended.
            guard (try? await Task.sleep(until: until, clock: .suspending)) != nil else { return }
        }
    }
}
