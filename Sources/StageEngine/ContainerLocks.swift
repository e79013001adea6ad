import StageContainer

/// How locks of a container are waited for.
enum ContainerLocks {
    /// Takes a lock as soon as nobody else has it.
    ///
    /// It is tried again from time to time, since a thread that waits in the kernel hears of no
    /// cancellation: a hook has a deadline, whoever holds a lock.
    static func take<Lock: Sendable>(
        _ report: @Sendable (StagingEvent) -> Void,
        _ attempt: () throws(ContainerError) -> Lock?
    ) async throws(StageError) -> Lock {
        var pause = Duration.milliseconds(10)
        var isWaiting = false
        while true {
            let lock = try StageError.wrapping { () throws(ContainerError) in try attempt() }
            if let lock { return lock }
            if !isWaiting { report(.waitingForOther) }
            isWaiting = true
            do {
                try await Task.sleep(for: pause)
            } catch {
                throw .cancelled
            }
            pause = min(pause * 2, .milliseconds(200))
        }
    }
}
