/// The chain of root metadata that an application trusts: the one that it ships with, and its successors,
/// each signed as its predecessor requires.
package struct RootChain: Hashable, Sendable {
    /// The last root metadata of the chain.
    package private(set) var root: RootMetadata
    /// The file of ``root``.
    package private(set) var bytes: [UInt8]

    /// Follows stored root metadata from the one that an application ships with.
    ///
    /// The chain ends before the first version that is missing or not signed correctly, which is then
    /// requested from the repository. Expiry is not checked.
    ///
    /// - Parameters:
    ///   - initialRoot: The root metadata file that is trusted initially.
    ///   - next: Returns the stored file of a version, or `nil` if there is none.
    /// - Throws: ``TrustError`` if the first root metadata is invalid.
    package init(
        from initialRoot: [UInt8],
        next: (_ version: Int) -> [UInt8]?
    ) throws(TrustError) {
        let limits = TrustLimits()
        root = try RootMetadata(trusted: initialRoot, limits: limits)
        bytes = initialRoot
        while let found = next(root.version + 1) {
            // An invalid stored file counts as missing.
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
