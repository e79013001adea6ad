package import StageModel

/// The free space of a container's file system, as plans, runs and `doctor` compare it with what content needs.
///
/// Content fits if ``Planner/reserve`` stays free beside it.
package struct AvailableSpace: Equatable, Sendable {
    /// The free bytes; `nil` if they are unknown: then everything fits.
    private var free: ByteCount?

    /// Space that is missing for content.
    package struct Shortage: Equatable, Sendable {
        /// The bytes that would have to be free, with the reserve.
        package let needed: ByteCount
        /// The free bytes.
        package let available: ByteCount

        /// The bytes to free.
        package var missing: ByteCount { needed - available }
    }

    /// Creates the space of a file system with so many free bytes; `nil` if they are unknown.
    package init(_ free: ByteCount?) { self.free = free }

    /// Returns the space that is missing for content of a size; `nil` if the content fits.
    package func shortage(for size: ByteCount) -> Shortage? {
        let needed = size + Planner.reserve
        guard let free, needed > free else { return nil }
        return Shortage(needed: needed, available: free)
    }

    /// Reserves space for content of a size, after evictions have freed so many bytes.
    mutating func take(_ size: ByteCount, freeing freed: ByteCount = .zero) {
        free = free.map { $0 + freed - size }
    }
}

extension StageError {
    /// Creates the error of content that does not fit.
    init(_ shortage: AvailableSpace.Shortage) {
        self = .noSpace(needed: shortage.needed, available: shortage.available)
    }
}

extension Plan.Refusal {
    /// Creates the refusal of a pack that does not fit on the file system.
    init(_ shortage: AvailableSpace.Shortage) {
        self = .noSpace(needed: shortage.needed, available: shortage.available)
    }
}
