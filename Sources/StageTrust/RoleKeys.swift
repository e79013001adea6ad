import StageDigest
import StageModel

/// A public key in the format of TUF metadata.
public struct ListedKey: Hashable, Sendable {
    /// The key's id: the SHA-256 of its canonical JSON, in hexadecimal digits.
    public let id: String
    /// The key type, such as `ed25519`.
    public let keyType: String
    /// The signature scheme, such as `ed25519`.
    public let scheme: String
    /// The key: hexadecimal digits for Ed25519, otherwise PEM.
    public let text: String
    /// Indicates whether ``id`` is the digest of the key's canonical form.
    let hasCorrectID: Bool

    /// Reads a key listed under `id`.
    init(reading node: JSONNode, id: String) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Member.self)
        keyType = try members.string(.keytype)
        scheme = try members.string(.scheme)
        let value = try JSONMembers(
            members.node(.keyval, expected: "an object"),
            keyedBy: ValueMember.self
        )
        // Unknown key types may have other members: such a key is listed but not used.
        text = value.has(.public) ? try value.string(.public) : ""
        self.id = id
        let digest = Digest(of: try CanonicalJSON.bytes(of: node))
        hasCorrectID = digest.description == id
    }

    private enum Member: String, CodingKey { case keytype, scheme, keyval }
    private enum ValueMember: String, CodingKey { case `public` }

    /// Reads the keys of a member `keys`.
    static func keys(_ node: JSONNode) throws(ManifestError) -> [String: ListedKey] {
        var keys: [String: ListedKey] = [:]
        for (id, node) in try node.members() {
            keys[id] = try ListedKey(reading: node, id: id)
        }
        return keys
    }

    /// Returns the usable key.
    func publicKey() throws(KeyError) -> PublicKey {
        guard let known = SignatureScheme(rawValue: scheme),
            // Repositories of older versions use the scheme as the type of ECDSA keys.
            keyType == known.keyType || (keyType == scheme && known.keyType == "ecdsa")
        else { throw .unsupported(keyType: keyType, scheme: scheme) }
        return try PublicKey(text, scheme: known)
    }
}

/// The keys whose signatures make metadata of one role valid.
public struct RoleKeys: Hashable, Sendable {
    /// The keys, in the order of the metadata.
    public let keys: [ListedKey]
    /// The number of keys that must sign, at least one.
    public let threshold: Int
    /// The ids that are listed without a key.
    let missing: [String]

    /// Reads the members `keyids` and `threshold` of an object.
    init(reading node: JSONNode, from known: [String: ListedKey]) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Member.self)
        let ids = try members.values(
            JSONString.self,
            for: .keyids,
            expected: "an array of key ids",
            atMost: Self.limit
        ).map(\.text)
        var first: [String: Int] = [:]
        for (index, id) in ids.enumerated() {
            if let earlier = first.updateValue(index, forKey: id) {
                let path = members.path(.keyids)
                throw .duplicate(
                    member: "\(path)[\(index)]",
                    first: "\(path)[\(earlier)]",
                    value: id
                )
            }
        }
        threshold = try members.number(.threshold, in: 1...Int(Int32.max))
        keys = ids.compactMap { known[$0] }
        missing = ids.filter { known[$0] == nil }
    }

    private enum Member: String, CodingKey { case keyids, threshold }

    /// The maximum number of keys of one role.
    private static let limit = 1024

    /// Checks that enough keys have signed; returns the shortage otherwise.
    ///
    /// A key counts once even if it is listed under several ids: keys are compared by their encoding.
    func shortage(of envelope: Envelope, delegator: RoleName, version: Int) -> SignatureShortage? {
        var signers: Set<[UInt8]> = []
        var unusable: [String: String] = [:]
        for id in missing { unusable[id] = "its public key is not listed" }
        for key in keys {
            guard let signature = envelope.signatures[key.id] else { continue }
            guard key.hasCorrectID else {
                unusable[key.id] = "its id is not the digest of the key"
                continue
            }
            do throws(KeyError) {
                let publicKey = try key.publicKey()
                if publicKey.verifies(signature: signature, of: envelope.message) {
                    signers.insert(publicKey.encoded)
                }
            } catch {
                unusable[key.id] = error.description
            }
            if signers.count >= threshold { return nil }
        }
        return SignatureShortage(
            delegator: delegator,
            delegatorVersion: version,
            valid: signers.count,
            threshold: threshold,
            unusable: unusable
        )
    }

    /// Returns whether a key of this role is missing in `later`: the role's keys were rotated.
    func areRotated(in later: RoleKeys) -> Bool {
        !Set(keys.map(\.text)).isSubset(of: Set(later.keys.map(\.text)))
    }
}
