package import StageDigest
import StageModel

/// A private key in memory, in a token or behind a program.
package protocol MetadataSigner: AnyObject {
    /// The public half of the key.
    var key: RepositoryKey { get }

    /// Returns the signature of `message`.
    ///
    /// - Parameters:
    ///   - message: The bytes to sign.
    ///   - subject: The name of the metadata in messages, such as `version 2 of targets metadata`.
    /// - Returns: The signature.
    /// - Throws: ``SigningError`` if the key cannot be used.
    func signature(of message: [UInt8], subject: String) throws(SigningError) -> [UInt8]
}

/// A private key that OpenSSL uses: in memory or in a token.
package final class PrivateKeySigner: MetadataSigner {
    /// The public half of the key.
    package let key: RepositoryKey
    private let privateKey: PrivateKey
    private let source: String

    /// Creates a signer; messages name the key by `source`.
    ///
    /// - Throws: ``SigningError/key(source:_:)`` if OpenSSL is out of memory.
    package init(_ privateKey: consuming PrivateKey, source: String) throws(SigningError) {
        do throws(KeyError) {
            key = RepositoryKey(try privateKey.publicKey())
        } catch {
            throw .key(source: source, error)
        }
        self.privateKey = privateKey
        self.source = source
    }

    /// Finds a key in a PKCS #11 token by the rules of ``PrivateKey/init(tokenURI:pin:)``.
    ///
    /// - Throws: ``SigningError/key(source:_:)`` if the key does not exist or cannot be used.
    package convenience init(
        tokenURI uri: String,
        pin: @escaping () -> [UInt8]?
    ) throws(SigningError) {
        let key: PrivateKey
        do throws(KeyError) {
            key = try PrivateKey(tokenURI: uri, pin: pin)
        } catch {
            // A refused URI may contain a PIN, so it is not shown.
            if case .tokenURI = error { throw .key(source: PrivateKey.tokenScheme, error) }
            throw .key(source: uri, error)
        }
        try self.init(key, source: uri)
    }

    /// Returns the signature of `message`.
    ///
    /// - Parameters:
    ///   - message: The bytes to sign.
    ///   - subject: The name of the metadata in messages.
    /// - Returns: The signature.
    /// - Throws: ``SigningError`` if the key cannot be used.
    package func signature(
        of message: [UInt8],
        subject: String
    ) throws(SigningError) -> [UInt8] {
        do throws(KeyError) {
            return try privateKey.signature(of: message)
        } catch {
            throw .key(source: source, error)
        }
    }
}
