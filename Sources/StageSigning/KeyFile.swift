public import StageDigest
import StageModel
import StageSystem
public import SystemPackage

/// A file with a key in PEM.
public enum KeyFile {
    /// The content of a key file.
    public enum Content {
        /// A private key, which signs.
        case signer(PrivateKeySigner)
        /// A public key, for roles whose private key is elsewhere.
        case publicKey(RepositoryKey)
    }

    /// The most bytes of a key file.
    private static let limit = 64 << 10

    /// Reads a private or public key.
    ///
    /// - Parameters:
    ///   - path: The file.
    ///   - passphrase: Called for an encrypted key; returns `nil` where there is none.
    /// - Returns: The key.
    /// - Throws: ``SigningError/exposed(path:_:)`` for a private key that others than its
    ///   owner may read, and ``SigningError/key(source:_:)`` for a file that is no such key.
    public static func read(
        _ path: FilePath,
        passphrase: () -> [UInt8]?
    ) throws(SigningError) -> Content {
        var (bytes, mode) = try SigningError.wrapping { () throws(FileError) in
            let file = try File.open(readingRegular: path)
            return (try file.readAll(limit: limit), try file.status().mode)
        }
        defer { bytes.wipe() }
        let pem = String(decoding: bytes, as: UTF8.self)
        do throws(KeyError) {
            if pem.drop(while: \.isWhitespace).hasPrefix("-----BEGIN PUBLIC KEY-----") {
                return .publicKey(RepositoryKey(try PublicKey(pem: pem)))
            }
        } catch {
            throw .key(source: path.string, error)
        }
        guard mode & 0o077 == 0 else {
            throw .exposed(path: path.string, .mode(mode))
        }
        let key: PrivateKey
        do throws(KeyError) {
            key = try PrivateKey(pem: pem, passphrase: passphrase)
        } catch {
            throw .key(source: path.string, error)
        }
        return .signer(try PrivateKeySigner(key, source: path.string))
    }

    /// Whether a file looks like a key in PEM; what cannot be read does not.
    public static func isKey(_ path: FilePath) -> Bool {
        guard let file = try? File.open(readingRegular: path) else { return false }
        var start = [UInt8](repeating: 0, count: 11)
        return (try? file.read(into: &start, at: 0)) == 11 && start == Array("-----BEGIN ".utf8)
    }

    /// Generates a key and writes it to a new file with mode 0600, encrypted under `passphrase`, or not
    /// encrypted for `nil`.
    ///
    /// - Throws: ``SigningError/file(_:)`` with `EEXIST` if there is a file.
    public static func generate(
        _ scheme: SignatureScheme,
        at path: FilePath,
        passphrase: [UInt8]?
    ) throws(SigningError) -> PrivateKeySigner {
        let key = try make(scheme, at: path)
        var pem: [UInt8]
        do throws(KeyError) {
            if let passphrase {
                pem = Array(try key.pem(encryptedWith: passphrase).utf8)
            } else {
                pem = Array(try key.unencryptedPEM().utf8)
            }
        } catch {
            throw .key(source: path.string, error)
        }
        defer { pem.wipe() }
        try SigningError.wrapping { () throws(FileError) in
            let above = path.removingLastComponent()
            let directory = try Directory.open(above.isEmpty ? "." : above)
            guard let name = path.lastComponent else {
                throw FileError("create", path, .isDirectory)
            }
            // Not by a temporary name: two commands must not both believe that theirs is the key.
            let file = try directory.file(creating: FilePath(name), permissions: .privateFile)
            do throws(FileError) {
                try file.settle(.privateFile)
                try file.write(pem.span, at: 0)
                try file.synchronize()
                try directory.synchronize()
            } catch {
                // The error that counts is the first one.
                _ = try? directory.remove(name)
                throw error
            }
        }
        return try PrivateKeySigner(key, source: path.string)
    }

    private static func make(
        _ scheme: SignatureScheme,
        at path: FilePath
    ) throws(SigningError) -> PrivateKey {
        do throws(KeyError) {
            return try PrivateKey(generating: scheme)
        } catch {
            throw .key(source: path.string, error)
        }
    }
}
