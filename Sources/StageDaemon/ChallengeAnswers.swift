import StageControl

extension SessionEvent {
    /// Returns the end of an upload: a failure if the response has an error status and the client does not accept
    /// those.
    func checkingStatus(_ request: TransferRequest) -> SessionEvent {
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
    /// Set if a download repeats its request after the client rejected the challenge, to receive the response as
    /// content.
    var takesRejectedChallenge: Bool {
        kind == .download && acceptsErrorResponses == true
            && (isIdempotent ?? ["GET", "HEAD"].contains(method ?? "GET"))
    }
}
