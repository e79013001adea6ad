package import StageDigest
import StageModel
import StageTrust

/// A public key in the format of TUF metadata.
package struct RepositoryKey {
    /// The key's id: the SHA-256 of its canonical JSON, in hexadecimal digits.
    package let id: String
    /// The signature scheme, named as in TUF metadata, such as `ed25519`.
    package let scheme: String
    /// The key: hexadecimal digits for Ed25519, otherwise PEM.
    package let text: String
    /// The entry in metadata, including unknown members.
    let tree: JSONTree

    /// Creates the entry of a key.
    package init(_ key: borrowing PublicKey) {
        let tree = JSONTree.object([
            .init("keytype", .string(key.scheme.keyType)),
            .init("scheme", .string(key.scheme.rawValue)),
            .init("keyval", .object([.init("public", .string(key.text))])),
        ])
        self.init(id: Digest(of: tree.canonicalBytes).description, tree: tree)
    }

    /// Reads the entry that metadata lists under `id`.
    init(id: String, tree: JSONTree) {
        self.id = id
        self.tree = tree
        scheme = tree["scheme"]?.string ?? ""
        text = tree["keyval"]?["public"]?.string ?? ""
    }

    /// The key in PEM, or `nil` if its type is not supported.
    package var pem: String? {
        guard let scheme = SignatureScheme(rawValue: scheme),
            let key = try? PublicKey(text, scheme: scheme)
        else { return nil }
        return key.pem
    }
}

extension JSONTree {
    /// The bytes that signatures and key ids are computed over.
    ///
    /// - Precondition: The value has no numbers other than integers.
    var canonicalBytes: [UInt8] {
        do throws(ManifestError) {
            return try CanonicalJSON.bytes(of: JSONNode(value: self))
        } catch {
            preconditionFailure("metadata has integers only: \(error)")
        }
    }
}
