import FoundationEssentials
import StageControl
import StageModel
import StageTransfer

extension NewTask {
    /// Validates a request, and creates a task from it.
    ///
    /// - Throws: ``ControlRefusal`` with ``ControlRefusal/Code/invalid`` for an invalid request.
    init(
        _ request: TransferRequest,
        in session: SessionConfiguration,
        at now: Date
    ) throws(ControlRefusal) {
        func invalid(_ text: String) -> ControlRefusal {
            ControlRefusal(.invalid, message: "task '\(request.token)': \(text)")
        }
        if request.kind == .staging {
            host = Scheduler.workerHost
        } else {
            do throws(ControlRefusal) {
                host = try RequestLimits.origin(of: request.url).description
            } catch {
                throw invalid(error.message)
            }
        }
        try RequestLimits.check(request, in: session)
        self.request = request
        self.request.hasChallengeCredential = nil
        priority = try Self.priority(request.priority ?? 0.5)
        constraints = TransferConstraints(session: session, request: request)
        blocks = request.isSuspended ?? false ? .client : []
        earliest = request.earliestBegin.flatMap { $0 > now ? $0 : nil }
        if request.isPromoted == true {
            (priority, constraints, earliest) = (Self.promotedPriority, [], nil)
        }
        deadline = now + min(max(session.resourceTimeout, 0), 10 * 365 * 86_400)
    }

    /// Converts a priority to the scheduler's scale, from 0 to ``highestPriority``.
    static func priority(_ value: Double) throws(ControlRefusal) -> Int {
        try RequestLimits.check(priority: value)
        return Int((value * Double(highestPriority)).rounded())
    }

    /// Highest priority that a request can have on the scheduler's scale, large enough to keep usual values distinct.
    static let highestPriority = 1_000_000_000
    /// Priority of a task that a person waits for.
    static let promotedPriority = highestPriority + 1
}
