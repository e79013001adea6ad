import StageDigest
import StageModel

/// A parsed metadata file: its signatures, the signed bytes, and the signed value.
struct Envelope: JSONReadable {
    /// The signatures by key id; one that is not hexadecimal is empty, and therefore invalid.
    let signatures: [String: [UInt8]]
    /// The signed bytes.
    let message: [UInt8]
    /// The signed value.
    let signed: JSONNode

    /// Creates an envelope from its parts.
    init(signatures: [String: [UInt8]], message: [UInt8], signed: JSONNode) {
        self.signatures = signatures
        self.message = message
        self.signed = signed
    }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Member.self)
        signed = try members.node(.signed, expected: "an object")
        message = try CanonicalJSON.bytes(of: signed)
        let list = try members.values(
            Signature.self,
            for: .signatures,
            expected: "an array of signatures",
            atMost: Self.signatureLimit
        )
        var signatures: [String: [UInt8]] = [:]
        var first: [String: Int] = [:]
        for (index, signature) in list.enumerated() {
            if let earlier = first.updateValue(index, forKey: signature.keyID) {
                throw .duplicate(
                    member: "signatures[\(index)].keyid",
                    first: "signatures[\(earlier)].keyid",
                    value: signature.keyID
                )
            }
            signatures[signature.keyID] = signature.bytes
        }
        self.signatures = signatures
    }

    /// Parses a file of at most `limit` bytes.
    init(_ bytes: [UInt8], of role: RoleName, limit: ByteCount) throws(TrustError) {
        do throws(ManifestError) {
            self = try ManifestError.decode(Envelope.self, from: bytes, limit: Int(limit.rawValue))
        } catch {
            throw .malformed(role, error)
        }
    }

    /// Parses the signed value, without checking signatures.
    func metadata<Metadata: SignedMetadata>(
        _ type: Metadata.Type,
        of role: RoleName
    ) throws(TrustError) -> Metadata {
        do throws(ManifestError) {
            return try Metadata(reading: signed)
        } catch {
            throw .malformed(role, error)
        }
    }

    private enum Member: String, CodingKey { case signed, signatures }

    /// The maximum number of signatures of one file.
    private static let signatureLimit = 1024

    private struct Signature: JSONReadable {
        let keyID: String
        let bytes: [UInt8]

        init(reading node: JSONNode) throws(ManifestError) {
            let members = try JSONMembers(node, keyedBy: Member.self)
            keyID = try members.string(.keyid)
            // An unreadable signature counts as invalid: other signatures may suffice.
            bytes = [UInt8](hexadecimal: try members.string(.sig)) ?? []
        }

        private enum Member: String, CodingKey { case keyid, sig }
    }
}

/// Metadata of any role.
protocol SignedMetadata: JSONReadable {
    /// The members that all roles have.
    var header: MetadataHeader { get }
}

/// The members that the metadata of all roles has.
struct MetadataHeader: Hashable, Sendable {
    let version: Int
    let expiry: MetadataTime

    /// The range of versions; its maximum is the largest integer that all JSON parsers represent exactly.
    static let versions = 1...(1 << 53)

    /// Reads the common members of metadata with this `type`.
    init(reading node: JSONNode, type: String) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Member.self)
        _ = try members.text(.type) { text throws(ValueError) in
            guard text == type else { throw ValueError(expected: "'\(type)'", text: text) }
        }
        let specification = try members.string(.specification)
        let parts = specification.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count <= 3, parts.allSatisfy({ UInt32($0) != nil }), let major = Int(parts[0])
        else {
            throw members.fault(
                for: .specification,
                ValueError(expected: "a version such as '1.0.34'", text: specification)
            )
        }
        try ManifestError.check(version: major, known: 1)
        version = try members.number(.version, in: Self.versions)
        expiry = try members.text(.expires) { text throws(ValueError) in try MetadataTime(text) }
    }

    private enum Member: String, CodingKey {
        case type = "_type"
        case specification = "spec_version"
        case version, expires
    }
}
