import StageModel
import StageSigning

/// Output of `keys` for one key.
struct KeyReport: Encodable, CustomStringConvertible {
    /// The key ID: the SHA-256 of the key's canonical form.
    var id: String
    /// The signature scheme.
    var scheme: String
    /// The public key in PEM, or as the metadata contains it if its type is unknown.
    var publicKey: String
    /// The roles that the key signs for.
    var roles: [String]

    init(_ key: RepositoryKey, roles: [String]) {
        id = key.id
        scheme = key.scheme
        publicKey = key.pem ?? key.text
        self.roles = roles
    }

    static func name(of role: SigningRole, threshold: Int) -> String {
        threshold == 1
            ? role.rawValue : "\(role.rawValue) (\(threshold.quantity(of: "key")) must sign)"
    }

    var description: String {
        let roles = roles.isEmpty ? "" : "\nroles: \(roles.joined(separator: ", "))"
        return "key: \(id)\nscheme: \(scheme.forDisplay())\(roles)\n\(publicKey.forDisplayLines)"
    }
}

extension String {
    /// The text, with each line escaped for display on a terminal.
    fileprivate var forDisplayLines: String {
        split(separator: "\n").map { String($0).forDisplay() }.joined(separator: "\n")
    }
}
