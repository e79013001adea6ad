import CCrypto

extension PrivateKey {
    /// Returns the key as encrypted PEM (PKCS #8).
    ///
    /// Uses PBES2 with AES-256-CBC and scrypt (RFC 7914) with N = 2^14, r = 8, p = 5, which takes 16 MiB and
    /// a fraction of a second.
    ///
    /// - Throws: ``KeyError/failed`` for an empty passphrase, or if OpenSSL cannot write the key.
    package func pem(encryptedWith passphrase: [UInt8]) throws(KeyError) -> String {
        defer { ERR_clear_error() }
        guard !passphrase.isEmpty, let plain = unsafe EVP_PKEY2PKCS8(key) else { throw .failed }
        defer { unsafe PKCS8_PRIV_KEY_INFO_free(plain) }
        // OpenSSL chooses the salt, of 16 bytes, and the initialization vector.
        guard
            let algorithm = unsafe PKCS5_pbe2_set_scrypt(
                EVP_aes_256_cbc(),
                nil,
                16,
                nil,
                1 << 14,
                8,
                5
            )
        else { throw .failed }
        let encrypted = unsafe passphrase.withUnsafeBytes { secret in
            unsafe PKCS8_set0_pbe(
                secret.baseAddress?.assumingMemoryBound(to: CChar.self),
                CInt(secret.count),
                plain,
                algorithm
            )
        }
        guard let encrypted = unsafe encrypted else {
            unsafe X509_ALGOR_free(algorithm)
            throw .failed
        }
        // The encrypted key owns the algorithm now.
        defer { unsafe X509_SIG_free(encrypted) }
        let output = MemoryBIO()
        guard unsafe PEM_write_bio_PKCS8(output.bio, encrypted) == 1 else { throw .failed }
        return String(decoding: output.contents(), as: UTF8.self)
    }

    /// Returns the key as unencrypted PEM (PKCS #8).
    ///
    /// - Throws: ``KeyError/failed`` if OpenSSL cannot write the key.
    package func unencryptedPEM() throws(KeyError) -> String {
        defer { ERR_clear_error() }
        let output = MemoryBIO()
        guard
            unsafe PEM_write_bio_PKCS8PrivateKey(output.bio, key, nil, nil, 0, nil, nil) == 1
        else { throw .failed }
        return String(decoding: output.contents(), as: UTF8.self)
    }
}
