import StageControl
import StageModel

/// What a delegate was told of a download, and so what it is to be told next.
struct DownloadWatch {
    /// Something to do because of an event.
    enum Step: Equatable {
        case begin
        case pause
        case write(new: Int64, total: Int64)
        case ask(challenge: String, failures: Int)
        /// It cannot go on at once, which ends a download that somebody waits for.
        case stall
        case fail(reason: String)
        case cancel
        case finish(path: String)
    }

    private var isUnderWay = false
    private var told: Int64
    private var challenges = 0

    /// Creates the watch of a download of which so many bytes are here already.
    init(received: Int64) { told = received }

    /// Takes an event in, and returns what to do, in order.
    mutating func take(_ event: SessionEvent) -> [Step] {
        switch event.kind {
        case .changed: return change(event)
        case .resumed:
            told = event.offset?.rawValue ?? told
            return begin()
        case .progress: return begin() + write(event)
        case .challenged:
            defer { challenges += 1 }
            return [.ask(challenge: event.challenge ?? "", failures: challenges)]
        case .completed:
            // Without a place the file was taken before, and only the acknowledgement got lost.
            return write(event) + (event.location.map { [.finish(path: $0)] } ?? [])
        case .failed:
            return [.fail(reason: event.failure?.reason ?? "the daemon gives no reason")]
        case .cancelled: return [.cancel]
        default: return []
        }
    }

    private mutating func change(_ event: SessionEvent) -> [Step] {
        let holds = event.holds ?? []
        if event.state == .running { return begin() }
        let stall: [Step] = holds.contains { Self.stalls.contains($0.reason) } ? [.stall] : []
        guard isUnderWay, event.state == .waiting || event.state == .suspended else { return stall }
        isUnderWay = false
        return [.pause] + stall
    }

    private mutating func begin() -> [Step] {
        defer { isUnderWay = true }
        return isUnderWay ? [] : [.begin]
    }

    private mutating func write(_ event: SessionEvent) -> [Step] {
        guard isUnderWay, let total = event.bytesReceived?.rawValue else { return [] }
        // Where a server cannot go on, it is begun anew.
        defer { told = total }
        return total > told ? [.write(new: total - told, total: total)] : []
    }

    /// What somebody who waits is not to wait for.
    private static let stalls: Set<HoldReason> = [.backoff, .server, .offline, .portal, .disk]
}
