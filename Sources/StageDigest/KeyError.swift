import StageModel

/// The reason why a key cannot be used.
@nonexhaustive
package indirect enum KeyError: Error, Equatable, Sendable {
    /// The key type and scheme are not supported together.
    case unsupported(keyType: String, scheme: String)
    /// The text is not a key in the encoding `expected`, which the scheme needs.
    case unreadable(expected: String)
    /// The key is of another type than its scheme needs.
    case wrongType(expected: String)
    /// An RSA key has an unsupported size.
    case rsaSize(bits: Int)
    /// The private key is encrypted, and its passphrase is missing or wrong.
    case locked
    /// OpenSSL has no PKCS #11 provider, or cannot load it for this reason.
    case noTokenProvider(reason: String)
    /// The URI of a key in a token (RFC 7512) is not `expected`.
    case tokenURI(expected: String)
    /// OpenSSL found no private key in a token, for this reason.
    case token(reason: String)
    /// The URI of a key in a token matches more than one private key.
    case ambiguousToken(count: Int)
    /// OpenSSL could not create a key or a signature.
    case failed
}

extension KeyError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .unsupported(let keyType, let scheme):
            "key type '\(keyType.prefix(60))' with scheme '\(scheme.prefix(60))' is not supported"
        case .unreadable(let expected):
            "expected \(expected)"
        case .wrongType(let expected):
            "expected \(expected), found a key of another type"
        case .rsaSize(let bits):
            "expected an RSA key of \(SignatureScheme.rsaBits.lowerBound) to "
                + "\(SignatureScheme.rsaBits.upperBound) bits, found \(bits)"
        case .locked:
            "the key is encrypted, and the passphrase is missing or wrong"
        case .noTokenProvider(let reason):
            "OpenSSL's provider 'pkcs11' cannot be loaded: \(reason)"
        case .tokenURI(let expected):
            "expected \(expected)"
        case .token(let reason):
            "found no private key in the token: \(reason)"
        case .ambiguousToken(let count):
            "expected a URI that matches one private key, found \(count.quantity(of: "key"))"
        case .failed:
            "OpenSSL could not use the key"
        }
    }
}
