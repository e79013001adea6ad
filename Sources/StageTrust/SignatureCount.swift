import StageDigest
import StageModel

/// The keys of a role, divided into those that signed a metadata file and those that did not.
package struct SignatureCount: Hashable, Sendable {
    /// The ids of the keys with a valid signature, in the order of the root metadata.
    package let valid: [String]
    /// The ids of the role's other keys.
    package let missing: [String]
    /// The number of keys that must sign.
    package let threshold: Int
    /// Indicates whether clients accept the signatures.
    package let isComplete: Bool
}

extension RootMetadata {
    /// Counts the signatures of a message by the keys of a top-level role.
    ///
    /// - Parameters:
    ///   - signatures: The signatures by key id.
    ///   - message: The canonical form of the signed value.
    ///   - role: A top-level role.
    /// - Returns: The keys that signed, and those that did not.
    package func count(
        _ signatures: [String: [UInt8]],
        of message: [UInt8],
        by role: RoleName
    ) -> SignatureCount {
        let envelope = Envelope(
            signatures: signatures,
            message: message,
            signed: JSONNode(value: .null)
        )
        let keys = keys(of: role)
        var valid: [String] = []
        for key in keys.keys {
            guard key.hasCorrectID, let signature = envelope.signatures[key.id],
                // A key that cannot be used counts as missing; clients report the reason.
                let publicKey = try? key.publicKey(),
                publicKey.verifies(signature: signature, of: envelope.message)
            else { continue }
            valid.append(key.id)
        }
        return SignatureCount(
            valid: valid,
            missing: keys.keys.map(\.id).filter { !valid.contains($0) },
            threshold: keys.threshold,
            isComplete: keys.shortage(of: envelope, delegator: .root, version: version) == nil
        )
    }
}
