import CCrypto
public import StageModel

/// Computes the SHA-256 digest of bytes as they arrive.
///
/// A hasher owns one OpenSSL context. It cannot be copied, and ``finish()`` consumes it, so feeding
/// bytes to a finished digest does not compile.
@safe public struct SHA256Hasher: ~Copyable {
    private let context: OpaquePointer

    /// Creates a hasher that has been fed no bytes.
    public init() {
        guard let context = unsafe EVP_MD_CTX_new() else { fatalError("out of memory") }
        unsafe self.context = context
        require(unsafe EVP_DigestInit_ex(context, EVP_sha256(), nil))
    }

    deinit {
        unsafe EVP_MD_CTX_free(context)
    }

    /// Feeds `bytes` to the digest.
    public mutating func update(_ bytes: Span<UInt8>) {
        unsafe bytes.withUnsafeBufferPointer { buffer in
            require(unsafe EVP_DigestUpdate(context, buffer.baseAddress, buffer.count))
        }
    }

    /// Returns the digest of every byte fed so far, and ends the hasher.
    public consuming func finish() -> Digest {
        var bytes = [UInt8](repeating: 0, count: Digest.byteCount)
        require(unsafe EVP_DigestFinal_ex(context, &bytes, nil))
        return Digest(bytes: bytes)
    }
}

/// Stops the process if an OpenSSL call that cannot fail on valid arguments did.
private func require(_ status: CInt) {
    precondition(status == 1, "OpenSSL rejected a SHA-256 operation")
}
