import StageDigest
import StageModel
import StageTrust

/// A metadata file: a signed value with its signatures.
struct SignedDocument {
    /// The signed value.
    let signed: JSONTree
    /// The bytes that signatures are computed over.
    let message: [UInt8]
    /// The hexadecimal signatures by key id, in the order of the file.
    private(set) var signatures: [(id: String, value: String)] = []

    /// Creates a document without signatures.
    init(signed: JSONTree) {
        self.signed = signed
        message = signed.canonicalBytes
    }

    /// Parses a file; messages name it by `path`.
    init(reading bytes: [UInt8], path: String, role: SigningRole) throws(SigningError) {
        do throws(ManifestError) {
            let tree = try JSONNode(json: bytes).value
            guard let signed = tree["signed"], signed["version"]?.integer != nil,
                signed["_type"]?.string == role.rawValue,
                Self.time(signed["expires"]?.string) != nil
            else {
                throw .invalid(
                    member: "signed",
                    ValueError(expected: "\(role.rawValue) metadata", found: "another value")
                )
            }
            // A value that canonical JSON cannot express cannot be signed again.
            message = try CanonicalJSON.bytes(of: JSONNode(value: signed))
            self.signed = signed
            for entry in tree["signatures"]?.elements ?? [] {
                guard let id = entry["keyid"]?.string, let value = entry["sig"]?.string else {
                    continue
                }
                signatures.append((id, value))
            }
        } catch {
            throw .metadata(path: path, .malformed(role.name, error))
        }
    }

    private static func time(_ text: String?) -> MetadataTime? {
        // The caller reports an invalid time as an invalid file.
        text.flatMap { try? MetadataTime($0) }
    }

    /// The version of the metadata.
    var version: Int { signed["version"]?.integer ?? 0 }

    /// The time at which the metadata expires.
    var expiry: MetadataTime {
        Self.time(signed["expires"]?.string) ?? MetadataTime(secondsSince1970: 0)
    }

    /// The file's content.
    var bytes: [UInt8] {
        let entries = signatures.map { signature in
            JSONTree.object([
                .init("keyid", .string(signature.id)), .init("sig", .string(signature.value)),
            ])
        }
        let tree = JSONTree.object([
            .init("signatures", .array(entries)), .init("signed", signed),
        ])
        return Array("\(tree.text)\n".utf8)
    }

    /// The canonical JSON of the signed value without version and expiry.
    var content: [UInt8] {
        signed.setting("version", to: nil).setting("expires", to: nil).canonicalBytes
    }

    /// The signatures by key id; one that is not hexadecimal is empty, and therefore invalid.
    var signatureBytes: [String: [UInt8]] {
        Dictionary(
            signatures.map { ($0.id, [UInt8](hexadecimal: $0.value) ?? []) },
            uniquingKeysWith: { first, _ in first }
        )
    }

    /// Adds the signature of a key, replacing an earlier one of the same key.
    mutating func sign(with signer: any MetadataSigner) throws(SigningError) {
        let role = signed["_type"]?.string ?? ""
        let subject = "version \(version) of \(role) metadata"
        let value = try signer.signature(of: message, subject: subject).hexadecimal
        signatures.removeAll { $0.id == signer.key.id }
        signatures.append((signer.key.id, value))
    }

    /// Returns the description of the file for the metadata of another role.
    func description() -> JSONTree {
        JSONTree.file(bytes).setting("version", to: .integer(Int64(version)))
    }
}

extension JSONTree {
    /// Returns the length and digest of content in the format of TUF metadata.
    static func file(_ content: [UInt8]) -> JSONTree {
        .object([
            .init("length", .integer(Int64(content.count))),
            .init(
                "hashes",
                .object([.init("sha256", .string(Digest(of: content).description))])
            ),
        ])
    }

    /// Returns the value with this version and expiry.
    func versioned(_ version: Int, expiry: MetadataTime) -> JSONTree {
        setting("version", to: .integer(Int64(version)))
            .setting("expires", to: .string(expiry.description))
    }

    /// Returns metadata of a role without content.
    static func emptyMetadata(of role: SigningRole) -> JSONTree {
        .object([
            .init("_type", .string(role.rawValue)), .init("spec_version", .string("1.0.34")),
        ])
    }
}
