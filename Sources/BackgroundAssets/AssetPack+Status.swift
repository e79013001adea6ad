import StageContainer

extension AssetPack {
    /// What is known of a pack, with the numbers of Apple's framework.
    public struct Status: OptionSet, Hashable, Sendable {
        /// The bits.
        public let rawValue: UInt

        /// Makes a status of bits.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// The pack is offered, and not staged.
        public static let downloadAvailable = Status(rawValue: 1 << 0)
        /// Another version is staged than the one that is offered.
        public static let updateAvailable = Status(rawValue: 1 << 1)
        /// What is staged is the version that it is compared with.
        public static let upToDate = Status(rawValue: 1 << 2)
        /// What is staged is another version than the one that it is compared with.
        public static let outOfDate = Status(rawValue: 1 << 3)
        /// The manifest offers the pack no more.
        public static let obsolete = Status(rawValue: 1 << 4)
        /// This process is fetching the pack.
        public static let downloading = Status(rawValue: 1 << 5)
        /// Some version of the pack is staged.
        public static let downloaded = Status(rawValue: 1 << 6)
    }
}

extension AssetPack.Status {
    /// Compares what is staged of a pack with `pack`.
    ///
    /// - Parameters:
    ///   - pack: What is compared with; `nil` where the pack is offered no more.
    ///   - staged: What is staged.
    ///   - offer: The pack as the manifest offers it; `nil` if it does not.
    init(of pack: AssetPack?, staged: GenerationName?, offer: AssetPack?) {
        self = []
        if offer == nil { insert(.obsolete) }
        guard let staged else {
            if offer != nil { insert(.downloadAvailable) }
            return
        }
        insert(.downloaded)
        guard let pack else { return }
        if pack.isHeld(by: staged) {
            insert(.upToDate)
        } else {
            insert(.outOfDate)
            if pack == offer { insert(.updateAvailable) }
        }
    }
}
