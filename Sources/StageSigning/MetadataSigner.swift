public import StageDigest
import StageModel

/// A private key, wherever it is kept.
public protocol MetadataSigner: AnyObject {
    /// The public half of the key.
    var key: RepositoryKey { get }

    /// Returns the signature of the bytes.
    ///
    /// - Parameters:
    ///   - message: The bytes.
    ///   - subject: Names the metadata in messages, such as `version 2 of targets metadata`.
    /// - Returns: The signature.
    /// - Throws: ``SigningError`` if the key cannot be used.
    func signature(of message: [UInt8], subject: String) throws(SigningError) -> [UInt8]
}

/// A private key that OpenSSL signs with: in the memory of this process, or in a token.
public final class PrivateKeySigner: MetadataSigner {
    /// The public half of the key.
    public let key: RepositoryKey
    private let privateKey: PrivateKey
    private let source: String

    /// Creates a signer; `source` names the key in messages.
    ///
    /// - Throws: ``SigningError/key(source:_:)`` if OpenSSL has no memory.
    public init(_ privateKey: consuming PrivateKey, source: String) throws(SigningError) {
        do throws(KeyError) {
            key = RepositoryKey(try privateKey.publicKey())
        } catch {
            throw .key(source: source, error)
        }
        self.privateKey = privateKey
        self.source = source
    }

    /// Finds a key in a PKCS #11 token; ``PrivateKey/init(tokenURI:pin:)`` has the rules.
    ///
    /// - Throws: ``SigningError/key(source:_:)`` if there is no such key, or it cannot be used.
    public convenience init(
        tokenURI uri: String,
        pin: @escaping () -> [UInt8]?
    ) throws(SigningError) {
        let key: PrivateKey
        do throws(KeyError) {
            key = try PrivateKey(tokenURI: uri, pin: pin)
        } catch {
            // A URI that is refused may have a PIN in it.
            if case .tokenURI = error { throw .key(source: PrivateKey.tokenScheme, error) }
            throw .key(source: uri, error)
        }
        try self.init(key, source: uri)
    }

    /// Returns the signature of the bytes.
    ///
    /// - Parameters:
    ///   - message: The bytes.
    ///   - subject: Names the metadata in messages.
    /// - Returns: The signature.
    /// - Throws: ``SigningError`` if the key cannot be used.
    public func signature(
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
