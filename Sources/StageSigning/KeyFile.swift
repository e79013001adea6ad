package import StageDigest
import StageModel
import StageSystem
package import SystemPackage

/// A PEM file with a key.
package enum KeyFile {
    /// The content of a key file.
    package enum Content {
        /// A private key, which can sign.
        case signer(PrivateKeySigner)
        /// A public key, for roles whose private key is elsewhere.
        case publicKey(RepositoryKey)
    }

    /// The maximum number of bytes of a key file.
    private static let limit = 64 << 10

    /// Reads a private or public key.
    ///
    /// - Parameters:
    ///   - path: The file.
    ///   - passphrase: Called for an encrypted key; returns `nil` if there is none.
    /// - Returns: The key.
    /// - Throws: ``SigningError/exposed(path:_:)`` for a private key that other users can read, and
    ///   ``SigningError/key(source:_:)`` for a file that is not a valid key.
    package static func read(
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
        // Only PEM must be private: a file of another kind, given by mistake, is one that other users may read.
        guard
            pem.split(whereSeparator: \.isNewline).contains(where: { $0.hasPrefix("-----BEGIN ") })
        else {
            throw .key(source: path.string, .unreadable(expected: "a key in PEM"))
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

    /// Returns whether a file looks like a PEM key; `false` for an unreadable file.
    package static func isKey(_ path: FilePath) -> Bool {
        guard let file = try? File.open(readingRegular: path) else { return false }
        var start = [UInt8](repeating: 0, count: 11)
        return (try? file.read(into: &start, at: 0)) == 11 && start == Array("-----BEGIN ".utf8)
    }

    /// Generates a key and writes it to a new file with mode 0600, encrypted with `passphrase`, or
    /// unencrypted for `nil`.
    ///
    /// - Throws: ``SigningError/file(_:)`` with `EEXIST` if the file exists.
    package static func generate(
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
                throw FileError("create", path: path, errno: .isDirectory)
            }
            // Created exclusively, not renamed into place: of two concurrent commands, only one may succeed.
            let file = try directory.file(creating: FilePath(name), permissions: .privateFile)
            do throws(FileError) {
                try file.ensureMode(.privateFile)
                try file.write(pem.span, at: 0)
                try file.synchronize()
                try directory.synchronize()
            } catch {
                // The first error is the one to report.
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
