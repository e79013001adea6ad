import StageModel
import StagePublish

/// The delta set and the patch from an older version, and the transfer sizes of the update from it.
struct DeltaReport: Encodable, CustomStringConvertible {
    /// Result of creating a delta set or a patch.
    enum Outcome: String, Encodable {
        case made, present, useless, empty, disabled
    }

    /// The index of the older version, as it was named.
    var from: String
    var set: Outcome
    /// The bytes of the set, even if it was not kept; `nil` if a set would be empty.
    var deltaBytes: ByteCount?
    var patch: Outcome
    /// The bytes of the patch, even if it was not kept; `nil` if there can be none.
    var patchBytes: ByteCount?
    /// The bytes that the update transfers, including the index.
    var downloadSize: ByteCount
    /// The bytes that the update would transfer without a delta set and without a patch.
    var downloadSizeWithoutSet: ByteCount

    /// The reason why an older version has no delta set when the number of versions exceeds the manifest's
    /// limit.
    static let tooMany =
        "no delta set: a manifest names at most \(ManifestLimits.deltas), and newer versions use them all"

    init(from name: String, _ update: BaseUpdate) {
        from = name
        downloadSize = update.cost.total
        downloadSizeWithoutSet = update.plainCost.total
        (set, deltaBytes) = Self.outcome(update.set)
        (patch, patchBytes) = Self.outcome(update.patch)
    }

    private static func outcome(_ outcome: BaseUpdate.Outcome) -> (Outcome, ByteCount?) {
        switch outcome {
        case .made(let size): (.made, size)
        case .present(let size): (.present, size)
        case .useless(let size): (.useless, size)
        case .empty: (.empty, nil)
        case .disabled: (.disabled, nil)
        }
    }

    var description: String {
        let transfers = "an update transfers \(downloadSize)"
        let (setSize, patchSize) = (deltaBytes ?? .zero, patchBytes ?? .zero)
        let text =
            switch (patch, set) {
            case (.made, _):
                "a patch of \(patchSize); \(transfers) instead of \(downloadSizeWithoutSet)"
            case (.present, _):
                "an existing patch of \(patchSize); \(transfers) instead of "
                    + "\(downloadSizeWithoutSet)"
            case (_, .made):
                "a delta set of \(setSize); \(transfers) instead of \(downloadSizeWithoutSet)"
            case (_, .present):
                "an existing delta set of \(setSize); \(transfers) instead of "
                    + "\(downloadSizeWithoutSet)"
            case (_, .useless):
                "no delta set, since one of \(setSize) would save nothing; \(transfers)"
            case (.useless, .empty), (.useless, .disabled):
                "no patch, since it would save nothing; \(transfers)"
            case (_, .disabled):
                "no delta set and no patch, as the options say; \(transfers)"
            case (.empty, .empty), (.disabled, .empty):
                "no delta set, since no changed part resembles a part of that version; \(transfers)"
            }
        return "\(from.forDisplay()): \(text)"
    }
}
