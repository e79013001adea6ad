import CCrypto

/// A public key that verifies signatures of one scheme.
///
/// Owns one OpenSSL key, whose type, curve and RSA size the initializer checks.
@safe package struct PublicKey: ~Copyable {
    private let key: OpaquePointer
    /// The scheme of the signatures that it verifies.
    package let scheme: SignatureScheme

    /// Reads a key in the format of TUF metadata: hexadecimal digits for Ed25519, otherwise PEM
    /// (SubjectPublicKeyInfo; RFC 7468, section 13).
    ///
    /// - Throws: ``KeyError`` if the text is not a key of the scheme.
    package init(_ text: String, scheme: SignatureScheme) throws(KeyError) {
        let key =
            switch scheme {
            case .ed25519: unsafe try Self.ed25519(text)
            case .ecdsaP256, .ecdsaP384, .rsaPSS: unsafe try Self.pem(text)
            }
        unsafe try self.init(taking: key, scheme: scheme)
    }

    /// Reads a key from PEM (SubjectPublicKeyInfo; RFC 7468, section 13); the key type determines the scheme,
    /// as for private keys.
    ///
    /// - Throws: ``KeyError`` if the text is not a key, or the key type is not supported.
    package init(pem text: String) throws(KeyError) {
        let key = unsafe try Self.pem(text)
        guard let scheme = unsafe SignatureScheme(of: key) else {
            unsafe EVP_PKEY_free(key)
            throw .wrongType(expected: "an Ed25519, ECDSA P-256, ECDSA P-384 or RSA key")
        }
        unsafe try self.init(taking: key, scheme: scheme)
    }

    /// Takes ownership of an OpenSSL key, even if it throws.
    init(taking key: OpaquePointer, scheme: SignatureScheme) throws(KeyError) {
        unsafe self.key = key
        self.scheme = scheme
        unsafe try scheme.check(key)
    }

    deinit {
        unsafe EVP_PKEY_free(key)
    }

    /// Returns whether `signature` is the key's signature of `message`.
    package func verifies(signature: [UInt8], of message: [UInt8]) -> Bool {
        defer { ERR_clear_error() }
        guard let context = unsafe EVP_MD_CTX_new() else { fatalError("out of memory") }
        defer { unsafe EVP_MD_CTX_free(context) }
        var parameters: OpaquePointer?
        let started = unsafe EVP_DigestVerifyInit_ex(
            context,
            &parameters,
            scheme.messageDigestName,
            nil,
            nil,
            key,
            nil
        )
        guard started == 1, unsafe scheme.configure(parameters, saltLength: RSA_PSS_SALTLEN_AUTO)
        else { return false }
        // Only 1 means a valid signature: 0 is a wrong one, a negative result one that cannot be parsed.
        return unsafe EVP_DigestVerify(
            context,
            signature,
            signature.count,
            message,
            message.count
        ) == 1
    }

    /// The key as DER (SubjectPublicKeyInfo; RFC 5280, section 4.1); two keys are equal if and only if these
    /// bytes are.
    package var encoded: [UInt8] {
        let count = unsafe i2d_PUBKEY(key, nil)
        precondition(count > 0, "OpenSSL could not encode a public key")
        var bytes = [UInt8](repeating: 0, count: Int(count))
        let written = unsafe bytes.withUnsafeMutableBufferPointer { buffer in
            var position = buffer.baseAddress
            return unsafe i2d_PUBKEY(key, &position)
        }
        precondition(written == count, "OpenSSL could not encode a public key")
        return bytes
    }

    /// The key in the format of TUF metadata, which ``init(_:scheme:)`` reads.
    package var text: String {
        switch scheme {
        case .ed25519:
            // The last 32 bytes of the encoding are the key itself (RFC 8410, section 4).
            Array(encoded.suffix(32)).hexadecimal
        case .ecdsaP256, .ecdsaP384, .rsaPSS:
            pem
        }
    }

    /// The key in PEM (SubjectPublicKeyInfo; RFC 7468, section 13).
    package var pem: String {
        let output = MemoryBIO()
        let status = unsafe PEM_write_bio_PUBKEY(output.bio, key)
        precondition(status == 1, "OpenSSL could not encode a public key")
        return String(decoding: output.contents(), as: UTF8.self)
    }

    private static func ed25519(_ text: String) throws(KeyError) -> OpaquePointer {
        let expected = "64 hexadecimal digits, an Ed25519 key"
        guard let bytes = [UInt8](hexadecimal: text), bytes.count == 32 else {
            throw .unreadable(expected: expected)
        }
        guard
            let key = unsafe EVP_PKEY_new_raw_public_key_ex(
                nil,
                "ED25519",
                nil,
                bytes,
                bytes.count
            )
        else {
            ERR_clear_error()
            throw .unreadable(expected: expected)
        }
        return unsafe key
    }

    private static func pem(_ text: String) throws(KeyError) -> OpaquePointer {
        let expected = "a public key in PEM, beginning with '-----BEGIN PUBLIC KEY-----'"
        // OpenSSL also reads other encodings, such as private keys.
        guard text.drop(while: \.isWhitespace).hasPrefix("-----BEGIN PUBLIC KEY-----") else {
            throw .unreadable(expected: expected)
        }
        let input = MemoryBIO(holding: Array(text.utf8))
        // Without this callback OpenSSL would ask on the terminal for the passphrase of an encrypted text.
        let read = unsafe PEM_read_bio_PUBKEY(input.bio, nil, { _, _, _, _ in -1 }, nil)
        guard let key = unsafe read else {
            ERR_clear_error()
            throw .unreadable(expected: expected)
        }
        return unsafe key
    }
}

extension SignatureScheme {
    /// Returns the scheme of a key, or `nil` for other key types; ``check(_:)`` checks the size of RSA keys.
    init?(of key: OpaquePointer) {
        if unsafe EVP_PKEY_is_a(key, "RSA") == 1 {
            self = .rsaPSS
            return
        }
        let others: [SignatureScheme] = [.ed25519, .ecdsaP256, .ecdsaP384]
        guard let scheme = others.first(where: { (try? unsafe $0.check(key)) != nil }) else {
            return nil
        }
        self = scheme
    }

    /// OpenSSL's name of the message digest; `nil` for Ed25519, which signs the message itself.
    var messageDigestName: String? {
        switch self {
        case .ed25519: nil
        case .ecdsaP256, .rsaPSS: "SHA256"
        case .ecdsaP384: "SHA384"
        }
    }

    /// Sets the RSA-PSS padding; does nothing for other schemes.
    func configure(_ parameters: OpaquePointer?, saltLength: CInt) -> Bool {
        guard self == .rsaPSS else { return true }
        return unsafe EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING) == 1
            && EVP_PKEY_CTX_set_rsa_pss_saltlen(parameters, saltLength) == 1
            && EVP_PKEY_CTX_set_rsa_mgf1_md(parameters, EVP_sha256()) == 1
    }

    /// Throws if the key does not belong to the scheme.
    func check(_ key: OpaquePointer) throws(KeyError) {
        switch self {
        case .ed25519:
            guard unsafe EVP_PKEY_is_a(key, "ED25519") == 1 else {
                throw .wrongType(expected: "an Ed25519 key")
            }
        case .ecdsaP256: unsafe try Self.check(key, curve: "prime256v1", name: "P-256")
        case .ecdsaP384: unsafe try Self.check(key, curve: "secp384r1", name: "P-384")
        case .rsaPSS:
            guard unsafe EVP_PKEY_is_a(key, "RSA") == 1 else {
                throw .wrongType(expected: "an RSA key")
            }
            let bits = Int(unsafe EVP_PKEY_get_bits(key))
            guard Self.rsaBits.contains(bits) else { throw .rsaSize(bits: bits) }
        }
    }

    private static func check(
        _ key: OpaquePointer,
        curve: String,
        name: String
    ) throws(KeyError) {
        var group = [CChar](repeating: 0, count: 80)
        var length = 0
        let isCurve =
            unsafe EVP_PKEY_is_a(key, "EC") == 1
            && EVP_PKEY_get_group_name(key, &group, group.count, &length) == 1
            && String(decoding: group.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
                == curve
        ERR_clear_error()
        guard isCurve else { throw .wrongType(expected: "an ECDSA key on the curve \(name)") }
    }
}
