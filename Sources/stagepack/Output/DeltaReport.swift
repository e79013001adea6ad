import StageModel
import StagePublish

/// The delta set from an older version, and the bytes that the update from it transfers.
struct DeltaReport: Encodable, CustomStringConvertible {
    /// Whether there is a delta set, and why not.
    enum Outcome: String, Encodable {
        case made, present, useless, empty
    }

    /// The index of the older version, as it was named.
    var from: String
    var set: Outcome
    /// The bytes of the set, also of one that was not kept; `nil` where there is nothing to put into one.
    var deltaBytes: ByteCount?
    /// The bytes that the update transfers, the index included.
    var downloadSize: ByteCount
    /// The bytes that it would transfer without the set.
    var downloadSizeWithoutSet: ByteCount

    /// The reason why an older version has no delta set, where more were named than a manifest names.
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
