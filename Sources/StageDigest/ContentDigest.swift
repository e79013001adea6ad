import CCrypto
package import StageModel

/// A hash function that signed metadata may list digests of.
package enum HashFunction: String, CaseIterable, Hashable, Sendable {
    /// SHA-256 (FIPS 180-4).
    case sha256
    /// SHA-512 (FIPS 180-4).
    case sha512

    /// The number of bytes of a digest.
    package var byteCount: Int {
        switch self {
        case .sha256: 32
        case .sha512: 64
        }
    }
}

/// A digest together with the function that computed it.
package struct ContentDigest: Hashable, Sendable {
    /// The hash function.
    package let function: HashFunction
    /// The bytes of the digest, as many as the function has.
    package let bytes: [UInt8]

    /// Computes the digest of bytes in memory.
    package init(of content: [UInt8], using function: HashFunction) {
        self.function = function
        var digest = [UInt8](repeating: 0, count: function.byteCount)
        let algorithm =
            switch function {
            case .sha256: unsafe EVP_sha256()
            case .sha512: unsafe EVP_sha512()
            }
        let status = unsafe EVP_Digest(content, content.count, &digest, nil, algorithm, nil)
        precondition(status == 1, "OpenSSL rejected a digest operation")
        bytes = digest
    }

    /// Creates a digest from its hexadecimal digits, of either case.
    ///
    /// - Throws: ``ValueError`` if the text is not the digits of a digest of this function.
    package init(hexadecimal text: String, of function: HashFunction) throws(ValueError) {
        guard let bytes = [UInt8](hexadecimal: text), bytes.count == function.byteCount else {
            throw ValueError(expected: "\(2 * function.byteCount) hexadecimal digits", text: text)
        }
        self.function = function
        self.bytes = bytes
    }

    /// The digest as lower-case hexadecimal digits.
    package var hexadecimal: String { bytes.hexadecimal }
}
