/// A signature scheme, named as in TUF metadata.
package enum SignatureScheme: String, CaseIterable, Hashable, Sendable {
    /// Ed25519 (RFC 8032).
    case ed25519
    /// ECDSA on NIST P-256 with SHA-256 (FIPS 186-5); signatures are DER.
    case ecdsaP256 = "ecdsa-sha2-nistp256"
    /// ECDSA on NIST P-384 with SHA-384 (FIPS 186-5); signatures are DER.
    case ecdsaP384 = "ecdsa-sha2-nistp384"
    /// RSA-PSS with SHA-256 (RFC 8017), for keys of 2,048 to 8,192 bits.
    case rsaPSS = "rsassa-pss-sha256"

    /// The key type of the scheme in TUF metadata.
    package var keyType: String {
        switch self {
        case .ed25519: "ed25519"
        case .ecdsaP256, .ecdsaP384: "ecdsa"
        case .rsaPSS: "rsa"
        }
    }

    /// The supported RSA key sizes, in bits.
    ///
    /// Shorter keys can be broken; longer ones make verification slow enough for a denial-of-service attack.
    package static let rsaBits = 2048...8192
}
