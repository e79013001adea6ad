import FoundationEssentials
import StageControl
import StageModel

/// The state of a download as its delegate knows it; determines the next calls of the delegate.
struct DownloadEventTracker {
    /// A call or action that an event requires.
    enum Step: Equatable {
        case begin
        case pause
        case write(new: Int64, total: Int64)
        case ask(challenge: String, failures: Int)
        case fail(TransferFailure)
        case cancel
        case finish(path: String)
    }

    private var isUnderWay = false
    /// Received bytes that were reported to the delegate.
    private var reported: Int64
    private var challenges = 0
    /// Time of the last resumption; the daemon repeats the event, with this time, to a client that may have missed it.
    private var lastResumption: Date?

    /// Creates the tracker of a download with some bytes received already.
    init(received: Int64) { reported = received }

    /// Processes an event, and returns the steps in order.
    mutating func take(_ event: SessionEvent) -> [Step] {
        switch event.kind {
        case .changed: return change(event)
        case .resumed:
            if event.time != lastResumption {
                reported = event.offset?.rawValue ?? reported
            }
            lastResumption = event.time
            return begin()
        case .progress: return begin() + write(event)
        case .challenged:
            defer { challenges += 1 }
            return [.ask(challenge: event.challenge ?? "", failures: challenges)]
        case .completed:
            // No location: the file was delivered before, and only the acknowledgement was lost.
            return write(event) + (event.location.map { [.finish(path: $0)] } ?? [])
        case .failed:
            let unknown = TransferFailure(.lost, reason: "the daemon gives no reason")
            return [.fail(event.failure ?? unknown)]
        case .cancelled: return [.cancel]
        default: return []
        }
    }

    private mutating func change(_ event: SessionEvent) -> [Step] {
        if event.state == .running { return begin() }
        guard isUnderWay, event.state == .waiting || event.state == .suspended else { return [] }
        isUnderWay = false
        return [.pause]
    }

    private mutating func begin() -> [Step] {
        defer { isUnderWay = true }
        return isUnderWay ? [] : [.begin]
    }

    private mutating func write(_ event: SessionEvent) -> [Step] {
        guard isUnderWay, let total = event.bytesReceived?.rawValue else { return [] }
        // If the server cannot resume, the download restarts.
        defer { reported = total }
        return total > reported ? [.write(new: total - reported, total: total)] : []
    }
}
