import StageContainer
import StageEngine
import StageModel
import StagePack

extension PackOutcome {
    /// The planned or completed action.
    fileprivate var word: String {
        switch self {
        case .planned: "stage"
        case .failed: "refuse"
        case .evicted: "evict"
        case .present, .left, .waiting, .removed: "leave"
        case .staged: "staged"
        }
    }
}

/// Output of `plan` and `simulate`: a table of the decisions, and their total sizes.
struct PlanReport: Encodable, CustomStringConvertible {
    var plans: [StagingReport]

    var description: String { plans.map(Self.text).joined(separator: "\n\n") }

    private static func text(of plan: StagingReport) -> String {
        // Omits the column if no pack is in the user's or the system's container.
        let hasLocations = plan.packs.contains { $0.location != nil }
        let rows = plan.packs.map { pack in
            [pack.outcome.word, pack.id.text, "\(pack.version)", pack.policy]
                + (hasLocations ? [pack.location?.rawValue ?? "-"] : [])
                + [
                    pack.transferText,
                    pack.textOfReason + pack.pinText + (pack.transfer.map { "; \($0.text)" } ?? ""),
                ]
        }
        let head =
            ["", "pack", "version", "policy"] + (hasLocations ? ["where"] : []) + [
                "download", "why",
            ]
        var lines = [
            "\(plan.application), \(plan.revision.asManifestText), into \(plan.container)",
            Table(head: head, rows: rows).description,
        ]
        lines += (plan.evicted ?? []).map { "to make room: \($0)" }
        lines += (plan.removed ?? []).map { "to remove: \($0), since no manifest offers it" }
        if let total = plan.total { lines.append(total) }
        return lines.joined(separator: "\n")
    }
}

extension PackReport {
    /// The pin of a pack that is up to date, as a clause; empty for others, whose reason names a pin.
    fileprivate var pinText: String {
        outcome == .present ? pin.map { ", \($0.text)" } ?? "" : ""
    }

    /// The transferred bytes, or the bytes to be transferred, for people.
    fileprivate var transferText: String {
        if let transferred { return "\(transferred)" }
        guard let transferSize else { return "-" }
        return isTransferSizeExact == true ? "\(transferSize)" : "at most \(transferSize)"
    }
}

extension StagingReport {
    /// The total sizes of the planned packs; `nil` if none is planned.
    fileprivate var total: String? {
        let planned = packs.filter { $0.outcome == .planned }
        guard !planned.isEmpty else { return nil }
        let download = planned.reduce(ByteCount.zero) { $0 + ($1.transferSize ?? .zero) }
        let space = planned.reduce(ByteCount.zero) { $0 + ($1.diskSpace ?? .zero) }
        let most = planned.allSatisfy { $0.isTransferSizeExact == true } ? "" : "at most "
        return
            "\(planned.count.quantity(of: "pack")) to stage: \(most)\(download) to download, "
            + (space > .zero ? "at most \(space) on disk" : "0 B on disk")
    }
}
