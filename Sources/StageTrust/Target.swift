import StageDigest
package import StageModel

/// The path of a target, relative to the base URL of targets.
public struct TargetPath: ExactText {
    /// The path, with `/` between its components.
    public let text: String

    /// Creates a path; every text is valid.
    public init(_ text: String) { self.text = text }
}

extension TargetPath: CustomStringConvertible {
    /// The path, safe to print on a terminal.
    public var description: String { text.forDisplay() }
}

/// The members of a target in metadata.
struct TargetDescription: Hashable, Sendable {
    let length: ByteCount
    let digests: ContentDigests

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Member.self)
        length = try members.byteCount(.length, atMost: ByteCount(Int64.max))
        digests = try ContentDigests(reading: members.node(.hashes, expected: "an object"))
    }

    private enum Member: String, CodingKey { case length, hashes }
}

/// A file that trusted metadata names.
package struct Target: Hashable, Sendable {
    /// The path that was searched for.
    package let path: TargetPath
    /// The role whose metadata describes the target.
    package let role: RoleName
    /// The version of that metadata.
    package let version: Int
    /// The exact number of bytes.
    package let length: ByteCount
    /// The digests of the content.
    package let digests: ContentDigests
    /// The path of the file on the server, percent-encoded: append it to the targets base URL.
    ///
    /// With consistent snapshots the file name starts with a digest of the content.
    package let location: String

    init(
        _ path: TargetPath,
        describedBy found: TargetDescription,
        of metadata: MetadataVersion,
        isConsistent: Bool
    ) {
        self.path = path
        role = metadata.role
        version = metadata.version
        length = found.length
        digests = found.digests
        let encoded = path.text.percentEncoded(keeping: [UInt8(ascii: "/")])
        guard isConsistent, let digest = found.digests.known.first else {
            location = encoded
            return
        }
        let name = encoded.lastIndex(of: "/").map { encoded.index(after: $0) } ?? encoded.startIndex
        location = "\(encoded[..<name])\(digest.hexadecimal).\(encoded[name...])"
    }

    /// Checks that content matches the target's description.
    ///
    /// - Throws: ``TrustError/wrongContent(_:_:describedBy:)`` if the length or a digest differs, or if no
    ///   digest uses a supported hash function.
    package func check(_ content: [UInt8]) throws(TrustError) {
        let found = ByteCount(content.count)
        guard found == length else {
            throw wrong(.length(expected: length, found: found))
        }
        if let fault = digests.fault(of: content) { throw wrong(fault) }
    }

    private func wrong(_ fault: ContentFault) -> TrustError {
        .wrongContent(
            path.text,
            fault,
            describedBy: MetadataVersion(role: role, version: version)
        )
    }
}
