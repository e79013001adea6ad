import StageControl

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
