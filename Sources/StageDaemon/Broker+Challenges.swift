import FoundationEssentials
import Logging
import StageControl

extension Broker {
    /// Ends a task whose challenge the client has rejected, with the server's answer where that is an answer like any
    /// other.
    func endUnanswered(_ task: FullTask) async {
        var refusal = TransferFailure(.refused, reason: "the challenge was not answered")
        refusal.status = extras[task.record.id]?.response?.status ?? 401
        guard task.request.kind == .upload, let challenge = await challenge(of: task.record.id)
        else { return await fail(task, refusal) }
        var event = SessionEvent(.completed, time: .now)
        event.bytesSent = extras[task.record.id]?.sent
        event.bytesExpected = task.request.size
        event.response = challenge.response
        event.body = challenge.body
        var metrics = TransferMetrics(ended: .now)
        metrics.attempts = extras[task.record.id]?.attempts ?? 0
        event.metrics = metrics
        await conclude(
            [(task.record.id, event.judged(task.request))],
            removing: task.record.part
        )
    }

    private func challenge(of id: Int64) async -> SessionEvent? {
        do throws(DaemonError) {
            return try await journal.challenge(of: id)
        } catch {
            logger.warning("An answer could not be read", metadata: ["error": "\(error)"])
            return nil
        }
    }
}

extension SessionEvent {
    /// The end of an upload that was answered: a failure if the client does not accept error statuses.
    func judged(_ request: TransferRequest) -> SessionEvent {
        guard request.acceptsErrorResponses == false, let status = response?.status, status >= 400
        else { return self }
        var event = self
        event.kind = .failed
        let reason = "the server answered with status \(status)"
        event.failure = TransferFailure(.refused, reason: reason, status: status)
        return event
    }
}

extension TransferRequest {
    /// Whether a download goes on after its challenge was rejected, to receive the server's refusal.
    var takesRejectedChallenge: Bool {
        kind == .download && acceptsErrorResponses == true
            && (isIdempotent ?? ["GET", "HEAD"].contains(method ?? "GET"))
    }
}
