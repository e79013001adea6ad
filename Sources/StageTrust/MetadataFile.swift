package import StageModel

/// A metadata file to download.
package struct MetadataFile: Hashable, Sendable {
    /// The role whose metadata is in the file.
    package let role: RoleName
    /// The path of the file on the server, percent-encoded: append it to the metadata base URL.
    package let path: String
    /// The maximum number of bytes to read; a longer file is rejected.
    package let maximumLength: ByteCount

    /// Creates the description of a file, with the version in its name unless it is `nil`.
    init(of role: RoleName, version: Int?, maximumLength: ByteCount) {
        self.role = role
        path = version.map { "\($0).\(role.fileName)" } ?? role.fileName
        self.maximumLength = maximumLength
    }

    /// Throws if content exceeds the length limit.
    func checkLength(_ content: [UInt8]) throws(TrustError) {
        let found = ByteCount(content.count)
        guard found <= maximumLength else {
            let fault = ContentFault.tooLong(limit: maximumLength, found: found)
            throw .wrongContent(path, fault, describedBy: nil)
        }
    }
}

/// The metadata of the top-level roles as a client stores it: the downloaded bytes.
public struct StoredMetadata: Hashable, Sendable {
    /// The trusted root metadata: the stored one or, initially, the one that the application ships with.
    public var root: [UInt8]
    /// The timestamp metadata, or `nil` if none is stored.
    public var timestamp: [UInt8]?
    /// The snapshot metadata, or `nil` if none is stored.
    public var snapshot: [UInt8]?
    /// The metadata of the top-level targets role, or `nil` if none is stored.
    public var targets: [UInt8]?

    /// Creates stored metadata; initially with only the root that the application ships with.
    public init(
        root: [UInt8],
        timestamp: [UInt8]? = nil,
        snapshot: [UInt8]? = nil,
        targets: [UInt8]? = nil
    ) {
        self.root = root
        self.timestamp = timestamp
        self.snapshot = snapshot
        self.targets = targets
    }
}
