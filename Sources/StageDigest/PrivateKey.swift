import CCrypto

/// A private key that signs with one scheme.
///
/// Owns one OpenSSL key; OpenSSL overwrites its memory when it is freed.
@safe package struct PrivateKey: ~Copyable {
    let key: OpaquePointer
    /// The token that contains the key; `nil` for a key in memory.
    private let token: TokenAccess?
    /// The scheme of the key's signatures.
    package let scheme: SignatureScheme

    /// Generates a key; `rsaBits` is the size of an RSA-PSS key.
    ///
    /// - Throws: ``KeyError/rsaSize(bits:)`` for an unsupported size; ``KeyError/failed`` if OpenSSL has no
    ///   randomness or memory.
    package init(
        generating scheme: SignatureScheme,
        rsaBits: Int = 3072
    ) throws(KeyError) {
        guard scheme != .rsaPSS || SignatureScheme.rsaBits.contains(rsaBits) else {
            throw .rsaSize(bits: rsaBits)
        }
        let key = unsafe try Self.generate(scheme, rsaBits: rsaBits)
        unsafe try self.init(taking: key, scheme: scheme)
    }

    /// Reads a private key from PEM (PKCS #8, encrypted or not).
    ///
    /// The key type determines the scheme; an RSA key signs with RSA-PSS.
    ///
    /// - Parameters:
    ///   - pem: The text, starting with `-----BEGIN PRIVATE KEY-----` or `-----BEGIN ENCRYPTED PRIVATE
    ///     KEY-----`.
    ///   - passphrase: Called once for an encrypted key; returns `nil` if there is none.
    /// - Throws: ``KeyError`` if the text is not such a key, the key type is not supported, or the passphrase
    ///   is missing or wrong.
    package init(pem: String, passphrase: () -> [UInt8]?) throws(KeyError) {
        let key = unsafe try Self.read(pem, passphrase: passphrase)
        unsafe try self.init(taking: key)
    }

    /// Takes ownership of an OpenSSL key, even if it throws; the key type determines the scheme.
    init(taking key: OpaquePointer, in token: TokenAccess? = nil) throws(KeyError) {
        guard let scheme = unsafe SignatureScheme(of: key) else {
            unsafe EVP_PKEY_free(key)
            throw .wrongType(expected: "an Ed25519, ECDSA P-256, ECDSA P-384 or RSA key")
        }
        unsafe try self.init(taking: key, in: token, scheme: scheme)
    }

    /// Takes ownership of an OpenSSL key, even if it throws.
    private init(
        taking key: OpaquePointer,
        in token: TokenAccess? = nil,
        scheme: SignatureScheme
    ) throws(KeyError) {
        unsafe self.key = key
        self.token = token
        self.scheme = scheme
        unsafe try scheme.check(key)
    }

    deinit {
        unsafe EVP_PKEY_free(key)
    }

    /// Returns the public key.
    ///
    /// - Throws: ``KeyError/failed`` if OpenSSL is out of memory.
    package func publicKey() throws(KeyError) -> PublicKey {
        let count = unsafe i2d_PUBKEY(key, nil)
        guard count > 0 else { throw .failed }
        var bytes = [UInt8](repeating: 0, count: Int(count))
        let copy = unsafe bytes.withUnsafeMutableBufferPointer { buffer -> OpaquePointer? in
            var position = buffer.baseAddress
            guard unsafe i2d_PUBKEY(key, &position) == count else { return nil }
            var start = unsafe UnsafePointer(buffer.baseAddress)
            return unsafe d2i_PUBKEY(nil, &start, CLong(count))
        }
        guard let copy = unsafe copy else {
            ERR_clear_error()
            throw .failed
        }
        return unsafe try PublicKey(taking: copy, scheme: scheme)
    }

    /// Returns the signature of `message`.
    ///
    /// - Throws: ``KeyError/failed`` if OpenSSL cannot sign.
    package func signature(of message: [UInt8]) throws(KeyError) -> [UInt8] {
        defer { ERR_clear_error() }
        token?.answerPINRequests()
        guard let signing = unsafe EVP_MD_CTX_new() else { fatalError("out of memory") }
        defer { unsafe EVP_MD_CTX_free(signing) }
        var parameters: OpaquePointer?
        var count = 0
        guard
            unsafe EVP_DigestSignInit_ex(
                signing,
                &parameters,
                scheme.messageDigestName,
                token?.context,
                nil,
                key,
                nil
            ) == 1,
            unsafe scheme.configure(parameters, saltLength: RSA_PSS_SALTLEN_DIGEST),
            unsafe EVP_DigestSign(signing, nil, &count, message, message.count) == 1
        else { throw .failed }
        var signature = [UInt8](repeating: 0, count: count)
        let status = unsafe EVP_DigestSign(
            signing,
            &signature,
            &count,
            message,
            message.count
        )
        guard status == 1 else { throw .failed }
        return Array(signature.prefix(count))
    }

    /// Decodes a key, and calls `passphrase` if it is encrypted.
    private static func read(
        _ pem: String,
        passphrase: () -> [UInt8]?
    ) throws(KeyError) -> OpaquePointer {
        let text = pem.drop(while: \.isWhitespace)
        let isEncrypted = text.hasPrefix("-----BEGIN ENCRYPTED PRIVATE KEY-----")
        guard isEncrypted || text.hasPrefix("-----BEGIN PRIVATE KEY-----") else {
            throw .unreadable(
                expected: "a private key in PEM (PKCS #8), beginning with "
                    + "'-----BEGIN PRIVATE KEY-----' or '-----BEGIN ENCRYPTED PRIVATE KEY-----'"
            )
        }
        var secret: [UInt8] = []
        if isEncrypted {
            guard let given = passphrase() else { throw .locked }
            secret = given
        }
        defer { secret.wipe() }
        guard let key = unsafe decode(pem, secret: &secret) else {
            ERR_clear_error()
            throw isEncrypted ? .locked : .unreadable(expected: "a private key in PEM (PKCS #8)")
        }
        return unsafe key
    }

    /// Decodes a key; OpenSSL calls the callback for the passphrase of an encrypted key.
    private static func decode(_ pem: String, secret: inout [UInt8]) -> OpaquePointer? {
        let input = MemoryBIO(holding: Array(pem.utf8))
        return unsafe withUnsafeMutablePointer(to: &secret) { secret in
            unsafe PEM_read_bio_PrivateKey(
                input.bio,
                nil,
                { buffer, size, _, context in
                    // Without this callback OpenSSL would ask on the terminal.
                    guard let buffer = unsafe buffer, let context = unsafe context else {
                        return -1
                    }
                    let secret = unsafe context.assumingMemoryBound(to: [UInt8].self).pointee
                    guard secret.count <= Int(size) else { return -1 }
                    for (index, byte) in secret.enumerated() {
                        unsafe buffer[index] = CChar(bitPattern: byte)
                    }
                    return CInt(secret.count)
                },
                secret
            )
        }
    }

    private static func generate(
        _ scheme: SignatureScheme,
        rsaBits: Int
    ) throws(KeyError) -> OpaquePointer {
        let name =
            switch scheme {
            case .ed25519: "ED25519"
            case .ecdsaP256, .ecdsaP384: "EC"
            case .rsaPSS: "RSA"
            }
        defer { ERR_clear_error() }
        guard let context = unsafe EVP_PKEY_CTX_new_from_name(nil, name, nil) else { throw .failed }
        defer { unsafe EVP_PKEY_CTX_free(context) }
        guard unsafe EVP_PKEY_keygen_init(context) == 1 else { throw .failed }
        let status =
            switch scheme {
            case .ed25519: CInt(1)
            case .ecdsaP256: unsafe EVP_PKEY_CTX_set_group_name(context, "prime256v1")
            case .ecdsaP384: unsafe EVP_PKEY_CTX_set_group_name(context, "secp384r1")
            case .rsaPSS: unsafe EVP_PKEY_CTX_set_rsa_keygen_bits(context, CInt(rsaBits))
            }
        var key: OpaquePointer?
        guard status == 1, unsafe EVP_PKEY_generate(context, &key) == 1, let key = unsafe key else {
            throw .failed
        }
        return unsafe key
    }
}

extension [UInt8] {
    /// Overwrites the bytes in a way that the compiler does not optimize away.
    package mutating func wipe() {
        unsafe withUnsafeMutableBytes { buffer in
            unsafe OPENSSL_cleanse(buffer.baseAddress, buffer.count)
        }
    }
}
