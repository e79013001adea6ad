import StageModel
import StagePublish

/// The delta set from an older version, and the transfer sizes of the update from it.
struct DeltaReport: Encodable, CustomStringConvertible {
    /// Result of creating the delta set.
    enum Outcome: String, Encodable {
        case made, present, useless, empty
    }

    /// The index of the older version, as it was named.
    var from: String
    var set: Outcome
    /// The bytes of the set, even if it was not kept; `nil` if a set would be empty.
    var deltaBytes: ByteCount?
    /// The bytes that the update transfers, including the index.
    var downloadSize: ByteCount
    /// The bytes that the update would transfer without the set.
    var downloadSizeWithoutSet: ByteCount

    /// The reason why an older version has no delta set when the number of versions exceeds the manifest's
    /// limit.
    static let tooMany =
        "no delta set, since a manifest names \(ManifestLimits.deltas), and newer ones are there"

    init(from name: String, _ update: BaseUpdate) {
        from = name
        downloadSize = update.cost.total
        downloadSizeWithoutSet = update.costWithoutSet.total
        switch update.set {
        case .made(let size): (set, deltaBytes) = (.made, size)
        case .present(let size): (set, deltaBytes) = (.present, size)
        case .useless(let size): (set, deltaBytes) = (.useless, size)
        case .empty: set = .empty
        }
    }

    var description: String {
        let size = deltaBytes ?? .zero
        let transfers = "an update transfers \(downloadSize)"
        let text =
            switch set {
            case .made:
                "a delta set of \(size); \(transfers) instead of \(downloadSizeWithoutSet)"
            case .present:
                "a delta set of \(size), which was there; \(transfers) instead of "
                    + "\(downloadSizeWithoutSet)"
            case .useless:
                "no delta set, since one of \(size) would save nothing; \(transfers)"
            case .empty:
                "no delta set, since no changed part is like one of that version; \(transfers)"
            }
        return "\(from.forDisplay()): \(text)"
    }
}
