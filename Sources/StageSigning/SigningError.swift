public import StageDigest
import StageModel
public import StageSystem
public import StageTrust

/// The reason why metadata cannot be signed.
@nonexhaustive
public indirect enum SigningError: Error, Equatable, Sendable {
    /// A file cannot be read or written.
    case file(FileError)
    /// The repository has no root metadata.
    case noRoot(path: String)
    /// The repository has root metadata, or a draft of it, already.
    case alreadyInitialized(path: String)
    /// A metadata file is not valid.
    case metadata(path: String, TrustError)
    /// A key cannot be used.
    case key(source: String, KeyError)
    /// A private key is where others can read it.
    case exposed(path: String, KeyExposure)
    /// A signing program did not do its part.
    case signer(program: String, SignerRequest, SignerFault)
    /// No key that was given signs for the role; `nil` stands for all roles.
    case noSigner(role: SigningRole?, expected: [String], given: [String])
    /// A role would have fewer keys than have to sign.
    case threshold(role: SigningRole, threshold: Int, keys: Int)
    /// No key of the repository has an id that begins so, or more than one has.
    case unknownKey(id: String)
}

/// The way in which others come by a private key.
public enum KeyExposure: Hashable, Sendable {
    /// Users other than the owner can read the file, which has these permission bits.
    case mode(UInt32)
    /// The file is, or would be, in a directory that is published.
    case published(directory: String)
}

/// A request to a signing program.
public enum SignerRequest: Hashable, Sendable {
    /// For its public key.
    case publicKey
    /// For a signature by the key with this id, of the metadata that `subject` names.
    case signature(subject: String, key: String)
    /// To end, after its last answer.
    case end
}

/// The way in which a signing program broke the protocol.
public enum SignerFault: Hashable, Sendable {
    /// It took longer than this.
    case late(Duration)
    /// It ended, or closed its output, before it answered.
    case ended
    /// It answered that it cannot do what was asked.
    case refused(String)
    /// Its answer is not one of the protocol.
    case malformed(String)
    /// The signature is not one by the key that it named.
    case wrongSignature
}

extension SigningError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
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
            "no key that was given signs for \(role.map { "'\($0.rawValue)'" } ?? "any role"): expected "
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
    /// The request, as an object of 'asked'.
    public var description: String {
        switch self {
        case .publicKey: "for its public key"
        case .signature(let subject, let key): "to sign \(subject) with key \(key.prefix(8))"
        case .end: "to end"
        }
    }
}

extension SignerFault: CustomStringConvertible {
    /// The fault, as the end of a sentence whose subject is the program.
    public var description: String {
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
    /// Runs `body`, whose file errors become errors of this type.
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
