package import StageDigest
package import StageModel
import StageTrust

/// A key that is generated in each run of the tests, and its entry in metadata.
package final class SigningKey {
    private let key: PrivateKey
    /// The key as metadata lists it.
    package let tree: JSONTree
    /// The key's id: the digest of ``tree``.
    package let id: String

    /// Generates a key; `extra` is an unknown member, which gives the same key another id.
    package init(_ scheme: SignatureScheme = .ed25519) throws {
        key = try PrivateKey(generating: scheme, rsaBits: 2048)
        tree = try Self.tree(of: key, extra: nil)
        id = try Self.id(of: tree)
    }

    /// The entry of the same key with an unknown member, which gives it another id.
    package func twin(_ extra: String) throws -> (id: String, tree: JSONTree) {
        let tree = try Self.tree(of: key, extra: extra)
        return (try Self.id(of: tree), tree)
    }

    package func signature(of message: [UInt8]) throws -> String {
        try key.signature(of: message).hexadecimal
    }

    private static func tree(of key: borrowing PrivateKey, extra: String?) throws -> JSONTree {
        var members: [JSONTree.Member] = [
            .init("keytype", .string(key.scheme.keyType)),
            .init("scheme", .string(key.scheme.rawValue)),
            .init("keyval", .object([.init("public", .string(try key.publicKey().text))])),
        ]
        if let extra { members.append(.init("x-note", .string(extra))) }
        return .object(members)
    }

    private static func id(of tree: JSONTree) throws -> String {
        Digest(of: try tree.canonicalBytes()).description
    }
}

extension JSONTree {
    /// The canonical bytes of the value, over which signatures are computed.
    package func canonicalBytes() throws -> [UInt8] {
        try CanonicalJSON.bytes(of: JSONNode(json: Array(text.utf8)))
    }
}
