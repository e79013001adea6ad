import StageModel

/// The failures of a report, where packs that fail for the same reason share one failure.
struct FailureGroups {
    /// The failures, in the order of the first pack of each.
    let failures: [FailureReport]

    /// Maximum number of packs that a message names in addition to the first one.
    private static let limit = 2

    /// Groups the failures of a report.
    init(of report: StagingReport) {
        var reasons: [String] = []
        var groups: [String: [(id: PackID, failure: FailureReport)]] = [:]
        for pack in report.packs {
            guard let failure = pack.error else { continue }
            let reason = Self.reason(failure.message, of: pack.id)
            if groups[reason] == nil { reasons.append(reason) }
            groups[reason, default: []].append((pack.id, failure))
        }
        let packs = reasons.compactMap { reason -> FailureReport? in
            guard let members = groups[reason], var failure = members.first?.failure else {
                return nil
            }
            failure.message += Self.text(of: members.dropFirst().map(\.id))
            return failure
        }
        let files = (report.files ?? []).compactMap(\.error)
        failures = [report.extensionProblem].compactMap(\.self) + packs + files
    }

    /// Returns the message without the parts that differ between packs: their names, the paths of URLs, and
    /// times.
    private static func reason(_ message: String, of id: PackID) -> String {
        message.replacing("'\(id)'", with: "").withoutPathsAndTimes
    }

    /// Returns the names of the other packs, as the end of a message.
    private static func text(of packs: [PackID]) -> String {
        guard !packs.isEmpty else { return "" }
        return "; the same for " + packs.map { "'\($0)'" }.named(upTo: limit, of: "pack")
    }
}
