package import StageDigest
import StageModel
package import StageSystem
package import StageTrust

/// The reason why metadata cannot be signed.
@nonexhaustive
package indirect enum SigningError: Error, Equatable, Sendable {
    /// A file cannot be read or written.
    case file(FileError)
    /// The repository has no root metadata.
    case noRoot(path: String)
    /// The repository has root metadata already, published or as a draft.
    case alreadyInitialized(path: String)
    /// A metadata file is not valid.
    case metadata(path: String, TrustError)
    /// A key cannot be used.
    case key(source: String, KeyError)
    /// Other users can read a private key.
    case exposed(path: String, KeyExposure)
    /// A signing program failed or violated the protocol.
    case signer(program: String, SignerRequest, SignerFault)
    /// None of the supplied keys signs for the role; `nil` stands for all roles.
    case noSigner(role: SigningRole?, expected: [String], given: [String])
    /// A role would have fewer keys than its threshold.
    case threshold(role: SigningRole, threshold: Int, keys: Int)
    /// No key of the repository, or more than one, has an id that starts with this.
    case unknownKey(id: String)
}

/// The way in which others can read a private key.
package enum KeyExposure: Hashable, Sendable {
    /// The file's permission bits let other users read it.
    case mode(UInt32)
    /// The file is, or would be, in a published directory.
    case published(directory: String)
}

/// A request to a signing program.
package enum SignerRequest: Hashable, Sendable {
    /// Return the public key.
    case publicKey
    /// Sign the metadata that `subject` names, with the key of this id.
    case signature(subject: String, key: String)
    /// End, after the last answer.
    case end
}

/// The way in which a signing program failed.
package enum SignerFault: Hashable, Sendable {
    /// The program exceeded this time limit.
    case late(Duration)
    /// The program ended, or closed its output, without an answer.
    case ended
    /// The program refused, for this reason.
    case refused(String)
    /// The answer is not valid JSON of the protocol.
    case malformed(String)
    /// The signature is not by the key that the program named.
    case wrongSignature
}

extension SigningError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .file(let error):
            error.description
        case .noRoot(let path):
            "'\(path.forDisplay())' has no root metadata"
        case .alreadyInitialized(let path):
            "'\(path.forDisplay())' has root metadata already"
        case .metadata(let path, let error):
            "'\(path.forDisplay())': \(error)"
        case .key(let source, let error):
            "\(source.forDisplay()): \(error)"
        case .exposed(let path, .mode(let mode)):
            "\(path.forDisplay()): expected a private key that its owner alone can read, found mode "
                + "0" + String(mode, radix: 8)
        case .exposed(let path, .published(let directory)):
            "\(path.forDisplay()): expected a private key outside of '\(directory.forDisplay())', which is "
                + "published with all that is in it"
        case .signer(let program, let request, let fault):
            "signing program '\(program.forDisplay())', asked \(request), \(fault)"
        case .noSigner(let role, let expected, let given):
            "none of the given keys signs for \(role.map { "'\($0.rawValue)'" } ?? "any role"): expected "
                + Self.list(expected, none: "no key") + ", found " + Self.list(given, none: "none")
        case .threshold(let role, let threshold, let keys):
            "role '\(role.rawValue)' would have \(keys) \(keys == 1 ? "key" : "keys"), and "
                + "\(threshold) must sign"
        case .unknownKey(let id):
            "expected the id of one key of the role, or its first digits, found '\(id.forDisplay())'"
        }
    }

    private static func list(_ ids: [String], none: String) -> String {
        guard !ids.isEmpty else { return none }
        return "key " + ids.map { String($0.prefix(8)) }.joined(separator: " or ")
    }
}

extension SignerRequest: CustomStringConvertible {
    /// The request, worded to follow 'asked'.
    package var description: String {
        switch self {
        case .publicKey: "for its public key"
        case .signature(let subject, let key): "to sign \(subject) with key \(key.prefix(8))"
        case .end: "to end"
        }
    }
}

extension SignerFault: CustomStringConvertible {
    /// The fault, worded to follow the program's name.
    package var description: String {
        switch self {
        case .late(let limit): "took longer than \(limit.inWords), and was ended"
        case .ended: "ended without an answer"
        case .refused(let reason): "refused: \(reason.forDisplay())"
        case .malformed(let reason): "gave an answer that cannot be read: \(reason.forDisplay())"
        case .wrongSignature: "gave a signature that its own key does not verify"
        }
    }
}

extension SigningError {
    /// Calls `body`, and wraps its ``FileError``.
    static func wrapping<Result: ~Copyable>(
        _ body: () throws(FileError) -> Result
    ) throws(SigningError) -> Result {
        do throws(FileError) {
            return try body()
        } catch {
            throw .file(error)
        }
    }
}
