import StageDigest
import StageModel
import StageSigning
import StageSystem
import SystemPackage

/// The keys that a command was given; each is read once.
final class Keyring {
    /// The private keys, in the order in which they were given.
    private(set) var signers: [any MetadataSigner] = []
    private var loaded: [String: RepositoryKey] = [:]
    private var programs: [ExternalSigner] = []
    private let passphrases: PassphraseSource
    private let answerLimit: Duration
    private let published: PublishedDirectory?

    /// Creates a keyring without keys.
    ///
    /// - Parameters:
    ///   - passphrases: The source of the passphrases of encrypted keys.
    ///   - answerLimit: Time limit for each answer of a signing program.
    ///   - manifest: The path of the manifest to sign; private keys must not be in its published directory.
    init(
        _ passphrases: PassphraseSource,
        answerLimit: Duration = ExternalSigner.answerLimit,
        signing manifest: String? = nil
    ) {
        self.passphrases = passphrases
        self.answerLimit = answerLimit
        published = manifest.flatMap { PublishedDirectory(ofManifest: FilePath($0)) }
    }

    /// The prefix of the path of a signing program.
    private static let programPrefix = "exec:"

    /// Returns whether a reference names a key by a signing program or a token, instead of a file.
    static func isElsewhere(_ reference: String) -> Bool {
        reference.hasPrefix(programPrefix) || reference.hasPrefix(PrivateKey.tokenScheme)
    }

    /// Reads a key, from a file in PEM, a signing program, or a PKCS #11 token.
    ///
    /// A private key is added to ``signers``.
    func load(_ reference: String) throws(CommandFailure) -> RepositoryKey {
        if let key = loaded[reference] { return key }
        let key: RepositoryKey
        if reference.hasPrefix(Self.programPrefix) {
            let program = String(reference.dropFirst(Self.programPrefix.count))
            key = add(try signer(program))
        } else if reference.hasPrefix(PrivateKey.tokenScheme) {
            key = try load(token: reference)
        } else {
            key = try load(file: reference)
        }
        loaded[reference] = key
        return key
    }

    /// Reads a key, or generates it if the reference is a file that does not exist.
    func load(
        _ reference: String,
        generating options: NewKeyOptions
    ) throws(CommandFailure) -> RepositoryKey {
        guard loaded[reference] == nil, !Self.isElsewhere(reference),
            !FileStatus.exists(FilePath(reference))
        else { return try load(reference) }
        return try generateKey(in: reference, options: options)
    }

    /// Generates a key in a new file, which must not be in a published directory.
    func generateKey(
        in file: String,
        options: NewKeyOptions
    ) throws(CommandFailure) -> RepositoryKey {
        let path = FilePath(file)
        guard !FileStatus.exists(path) else {
            var failure = CommandFailure(
                output: FileError("create", path: path, errno: .fileExists)
            )
            failure.hint = CommandFailure.hintForExistingFile
            throw failure
        }
        if let directory = published ?? PublishedDirectory(around: path), directory.contains(path) {
            throw CommandFailure(
                .exposed(path: file, .published(directory: directory.path.string))
            )
        }
        var passphrase: [UInt8]?
        if !options.unencrypted { passphrase = try passphrases.newPassphrase(of: file) }
        defer { passphrase?.wipe() }
        let scheme: SignatureScheme =
            switch options.type {
            case .ed25519: .ed25519
            case .ecdsaP256: .ecdsaP256
            case .ecdsaP384: .ecdsaP384
            case .rsa: .rsaPSS
            }
        do throws(SigningError) {
            let signer = try KeyFile.generate(scheme, at: path, passphrase: passphrase)
            loaded[file] = signer.key
            return add(signer)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Ends the signing programs, which cannot sign afterwards, and prints a warning for each that had to be
    /// killed.
    func finish() {
        for program in programs {
            if let error = program.finish() { Console.note("stagepack: warning: \(error)") }
        }
        programs = []
    }

    private func add(_ signer: any MetadataSigner) -> RepositoryKey {
        if !signers.contains(where: { $0.key.id == signer.key.id }) { signers.append(signer) }
        return signer.key
    }

    private func load(file: String) throws(CommandFailure) -> RepositoryKey {
        var failure: CommandFailure?
        do throws(SigningError) {
            let content = try KeyFile.read(FilePath(file)) {
                do throws(CommandFailure) {
                    return try passphrases.passphrase(of: file)
                } catch {
                    failure = error
                    return nil
                }
            }
            switch content {
            case .signer(let signer):
                warnIfPublished(file)
                return add(signer)
            case .publicKey(let key): return key
            }
        } catch {
            var ending = failure ?? CommandFailure(error)
            if case .file(let error) = error {
                ending.status = CommandFailure.status(ofArgument: error)
            }
            throw ending
        }
    }

    private func load(token uri: String) throws(CommandFailure) -> RepositoryKey {
        // OpenSSL calls the closure that asks for the PIN, which therefore cannot throw.
        var failure: CommandFailure?
        do throws(SigningError) {
            let signer = try PrivateKeySigner(tokenURI: uri) { [passphrases] in
                do throws(CommandFailure) {
                    return try passphrases.pin(of: uri)
                } catch {
                    failure = error
                    return nil
                }
            }
            return add(signer)
        } catch {
            throw failure ?? CommandFailure(error)
        }
    }

    /// Warns about a private key in a directory that a web server may publish.
    ///
    /// The key is used nevertheless: a timer must not let metadata expire, and the rotation to another key
    /// requires this key.
    private func warnIfPublished(_ file: String) {
        guard let published, published.contains(FilePath(file)) else { return }
        let error = SigningError.exposed(
            path: file,
            .published(directory: published.path.string)
        )
        Console.note("stagepack: warning: \(error)")
        Console.note(
            "hint: move it elsewhere; if it was uploaded, replace it: 'stagepack rotate --help' says how"
        )
    }

    private func signer(_ program: String) throws(CommandFailure) -> ExternalSigner {
        guard program.contains("/") else {
            throw .usage(
                "exec:\(program.forDisplay()): expected a path with a slash, such as "
                    + "'exec:./\(program.forDisplay())'"
            )
        }
        do throws(SigningError) {
            let signer = try ExternalSigner(
                FilePath(program),
                environment: ProcessEnvironment.current,
                answersWithin: answerLimit
            )
            programs.append(signer)
            return signer
        } catch {
            throw CommandFailure(error)
        }
    }
}
