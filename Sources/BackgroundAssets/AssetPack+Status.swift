import StageContainer

extension AssetPack {
    /// The status of a pack, with the raw values of Apple's framework.
    public struct Status: OptionSet, Hashable, Sendable {
        /// The raw value.
        public let rawValue: UInt

        /// Creates a status from its raw value.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// The manifest offers the pack, and it is not staged.
        public static let downloadAvailable = Status(rawValue: 1 << 0)
        /// The staged version differs from the offered one, and a fetch would replace it.
        public static let updateAvailable = Status(rawValue: 1 << 1)
        /// The staged version is the one that it is compared with, or one that stays instead of the offered one.
        public static let upToDate = Status(rawValue: 1 << 2)
        /// The staged version differs from the one that it is compared with.
        public static let outOfDate = Status(rawValue: 1 << 3)
        /// The manifest does not offer the pack any more.
        public static let obsolete = Status(rawValue: 1 << 4)
        /// This process is downloading the pack.
        public static let downloading = Status(rawValue: 1 << 5)
        /// A version of the pack is staged.
        public static let downloaded = Status(rawValue: 1 << 6)
    }
}

extension AssetPack.Status {
    /// Compares the staged version of a pack with `pack`.
    ///
    /// - Parameters:
    ///   - pack: The pack to compare with; `nil` if it is not offered any more.
    ///   - staged: The staged generation.
    ///   - offer: The pack as the manifest offers it; `nil` if it does not.
    ///   - isKept: Pass `true` if the staged version stays instead of the offered one, since another application of
    ///     the group offers it, or another container has it.
    init(of pack: AssetPack?, staged: GenerationName?, offer: AssetPack?, isKept: Bool = false) {
        self = []
        if offer == nil { insert(.obsolete) }
        guard let staged else {
            if offer != nil { insert(.downloadAvailable) }
            return
        }
        insert(.downloaded)
        guard let pack else { return }
        if pack.isHeld(by: staged) || isKept && pack == offer {
            insert(.upToDate)
        } else {
            insert(.outOfDate)
            if pack == offer { insert(.updateAvailable) }
        }
    }
}
