/// The root metadata that an application trusts: the one that it ships with, and those that followed,
/// each signed as the one before demands.
public struct RootChain: Hashable, Sendable {
    /// The last root metadata of the chain.
    public private(set) var root: RootMetadata
    /// The file of ``root``.
    public private(set) var bytes: [UInt8]

    /// Follows stored root metadata from the one that an application ships with.
    ///
    /// The chain ends before the first version that is missing or not signed as it has to be: the
    /// repository is asked for that one. None of it need be unexpired.
    ///
    /// - Parameters:
    ///   - shipped: The file of the root metadata that is trusted from the start.
    ///   - limits: The limits on what is read.
    ///   - next: Returns the stored file of a version, or `nil` if there is none.
    /// - Throws: ``TrustError`` if the first root metadata is not valid.
    public init(
        from shipped: [UInt8],
        limits: TrustLimits = TrustLimits(),
        next: (_ version: Int) -> [UInt8]?
    ) throws(TrustError) {
        root = try RootMetadata(trusted: shipped, limits: limits)
        bytes = shipped
        while let found = next(root.version + 1) {
            // A stored file that is not valid counts as missing.
            guard
                let later = try? MetadataReader(root: root, time: nil).nextRoot(
                    found,
                    limit: limits.rootLength
                )
            else { return }
            root = later
            bytes = found
        }
    }
}
