import FoundationEssentials
import StageControl

extension SessionEvent {
    /// Approximate bytes of the event in memory, most of them chosen by a server.
    var memorySize: Int {
        let problems = (pendingReasons ?? []).reduce(0) { $0 + ($1.problem?.utf8.count ?? 0) }
        return Self.baseSize + (response?.memorySize ?? 0) + (body?.count ?? 0) + problems
    }

    private static let baseSize = 1024
}
