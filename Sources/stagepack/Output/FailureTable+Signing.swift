import StageDigest
import StageModel
import StagePack
import StageSigning
import StageSystem
import SystemPackage

extension CommandFailure {
    /// Creates the failure for an error of signing; `manifest` is the path, and `keys` are the keys as they
    /// were given.
    init(_ error: SigningError, manifest: String? = nil, keys: [String] = []) {
        if case .file(let error) = error {
            self.init(output: error)
            return
        }
        self.init(
            status: Self.status(of: error),
            message: error.description,
            hint: Self.hint(
                for: error,
                manifest: manifest.map(Self.quoted) ?? "MANIFEST",
                keys: keys
            ),
            retryAdvice: .never
        )
    }

    private static func status(of error: SigningError) -> ExitStatus {
        switch error {
        case .unknownKey, .threshold, .alreadyInitialized: .usage
        case .metadata: .manifestInvalid
        case .file, .noRoot, .key, .exposed, .signer, .noSigner: .packagingFailed
        }
    }

    private static func hint(
        for error: SigningError,
        manifest: String,
        keys: [String]
    ) -> String? {
        switch error {
        case .noRoot:
            "stagepack keys init \(manifest)"
                + (keys.isEmpty ? ["KEYFILE"] : keys.map(quoted)).map { " --key \($0)" }.joined()
        case .alreadyInitialized: "to change keys: stagepack rotate \(manifest) --key KEYFILE"
        case .exposed(let path, .mode): "chmod 600 \(quoted(path))"
        case .exposed(_, .published(let directory)):
            // The directory with the nearest metadata can be the home directory.
            "name a file outside of \(quoted(directory)), or keep the manifest and "
                + quoted(FilePath(directory).appending("metadata").string)
                + " in a directory of their own"
        case .key(_, .locked): "run it again with the right passphrase or PIN"
        case .key(_, .noTokenProvider):
            "install it (the package 'pkcs11-provider'), or sign by a program: '--key exec:PROGRAM'"
        case .key(_, .tokenURI): "a URI has the form 'pkcs11:token=NAME;object=NAME'"
        case .key(_, .ambiguousToken): "add 'object=NAME' or 'id=%NN' to the URI"
        case .key(_, .token): "look at what the token has: 'pkcs11-tool --list-objects --login'"
        case .noSigner, .unknownKey: "stagepack keys show \(manifest)"
        case .threshold: "add keys, or lower '--threshold'"
        case .metadata: "restore the file from the copy on your server"
        case .key(let source, .unreadable) where source.hasSuffix(".json"):
            "'stagepack keys generate' makes a key; 'stagepack keys show MANIFEST' prints those of signed metadata"
        case .signer: "'Manifests/signing-program.md' describes what a signing program answers"
        case .file, .key: nil
        }
    }

    /// Returns a path, whole and quoted for a shell.
    ///
    /// Compares bytes: for a shell, every apostrophe ends the quotation; in Swift, an apostrophe and a combining character
    /// after it form one `Character`.
    static func quoted(_ path: String) -> String {
        let isPlain = path.utf8.allSatisfy { byte in
            let scalar = Unicode.Scalar(byte)
            return scalar.isASCII
                && (scalar.properties.isAlphabetic || "0123456789-._/+@:".utf8.contains(byte))
        }
        guard !isPlain || path.isEmpty else { return path }
        let parts = path.escapedForDisplay.utf8
            .split(separator: UInt8(ascii: "'"), omittingEmptySubsequences: false)
            .map { String(Substring($0)) }
        return "'" + parts.joined(separator: "'\\''") + "'"
    }
}
