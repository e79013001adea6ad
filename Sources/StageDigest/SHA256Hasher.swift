import CCrypto
package import StageModel

/// Computes the SHA-256 digest of a stream of bytes.
///
/// Owns one OpenSSL context. ``finish()`` consumes the noncopyable hasher, so that adding bytes after the end
/// does not compile.
@safe package struct SHA256Hasher: ~Copyable {
    private let context: OpaquePointer

    /// Creates a hasher without input.
    package init() {
        guard let context = unsafe EVP_MD_CTX_new() else { fatalError("out of memory") }
        unsafe self.context = context
        require(unsafe EVP_DigestInit_ex(context, EVP_sha256(), nil))
    }

    deinit {
        unsafe EVP_MD_CTX_free(context)
    }

    /// Adds `bytes` to the digest.
    package mutating func update(_ bytes: Span<UInt8>) {
        unsafe bytes.withUnsafeBufferPointer { buffer in
            require(unsafe EVP_DigestUpdate(context, buffer.baseAddress, buffer.count))
        }
    }

    /// Returns the digest of all bytes added, and ends the hasher.
    package consuming func finish() -> Digest {
        var bytes = [UInt8](repeating: 0, count: Digest.byteCount)
        require(unsafe EVP_DigestFinal_ex(context, &bytes, nil))
        return Digest(bytes: bytes)
    }
}

/// Traps if an OpenSSL call failed that cannot fail with valid arguments.
private func require(_ status: CInt) {
    precondition(status == 1, "OpenSSL rejected a SHA-256 operation")
}
