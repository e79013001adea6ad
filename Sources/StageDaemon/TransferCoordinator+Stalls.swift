import Logging
import StageControl

/// Tasks that fail instead of waiting.
extension TransferCoordinator {
    /// Fails a task that was removed from the scheduler because it would have to wait.
    ///
    /// Waits for a change of the task that is in progress: its client relies on the response before the task ends.
    func failStalled(_ id: Int64, with failure: TransferFailure) async {
        await beginChange(of: .task(id))
        defer { endChange(of: .task(id)) }
        do throws(DaemonError) {
            guard let task = try await journal.task(id) else {
                return state.forget(id, at: readClock())
            }
            await fail(task, with: failure)
        } catch {
            logger.error("A task could not be read", metadata: ["error": "\(error)"])
            unscheduled.insert(id)
            setTimer()
        }
    }
}
