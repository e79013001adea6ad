import ArgumentParser
import StageSigning

/// The keys that a command signs with.
struct SigningOptions: ParsableArguments {
    @Option(
        name: .customLong("key"),
        help: ArgumentHelp(
            "A key to sign with: a file in PEM, 'exec:' and the path of a signing program, or the 'pkcs11:' "
                + "URI of a key in a token (RFC 7512). May be given more than once.",
            valueName: "key"
        ),
        completion: .file()
    )
    var keys: [String] = []

    @OptionGroup var passphrase: PassphraseOptions
    @OptionGroup var program: SigningProgramOptions

    /// Returns a keyring without keys, for signing the manifest at a path.
    ///
    /// The caller must end the signing programs: `defer { keyring.finish() }`.
    func emptyKeyring(signing manifest: String) -> Keyring {
        Keyring(passphrase.source, answerLimit: program.answerLimit, signing: manifest)
    }

    /// Reads the named keys for signing the manifest at a path, and asks for their passphrases.
    func keyring(signing manifest: String) throws(CommandFailure) -> Keyring {
        let keyring = emptyKeyring(signing: manifest)
        for key in keys { _ = try keyring.load(key) }
        return keyring
    }

    /// Reads the named keys, which may be none, for a manifest that a command changes.
    func keyring(for manifest: ManifestFile) throws(CommandFailure) -> Keyring {
        if !keys.isEmpty, try !manifest.isSigned() {
            throw CommandFailure(
                .noRoot(path: manifest.name),
                manifest: manifest.name,
                keys: keys
            )
        }
        return try keyring(signing: manifest.name)
    }
}

/// The options for the passphrases of encrypted keys.
struct PassphraseOptions: ParsableArguments {
    @Option(
        name: .customLong("passphrase-fd"),
        help: ArgumentHelp(
            "Read passphrases and PINs from this file descriptor, a line for each encrypted key or token; the "
                + "last line is for all further ones. Default: asks at the terminal.",
            valueName: "number"
        )
    )
    var descriptor: Int32?

    func validate() throws {
        if let descriptor, descriptor < 0 {
            throw ValidationError("'--passphrase-fd' must not be negative.")
        }
    }

    /// The source of passphrases.
    var source: PassphraseSource { PassphraseSource(descriptor: descriptor) }
}

/// The option for the time limit of signing programs.
struct SigningProgramOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The seconds to wait for an answer of a signing program before it is killed. Default: 120.",
            valueName: "seconds"
        )
    )
    var signerTimeout: Seconds?

    func validate() throws {
        if let signerTimeout, signerTimeout.value == 0 {
            throw ValidationError("'--signer-timeout' takes a number of seconds above 0.")
        }
    }

    /// Time limit for each answer of a signing program.
    var answerLimit: Duration { signerTimeout?.duration ?? ExternalSigner.answerLimit }
}

/// Types of keys to generate.
enum KeyType: String, ExpressibleByArgument, CaseIterable {
    case ed25519
    case ecdsaP256 = "ecdsa-p256"
    case ecdsaP384 = "ecdsa-p384"
    case rsa
}

/// The options for generating a key.
struct NewKeyOptions: ParsableArguments {
    @Option(help: "The type of a key that is generated.") var type = KeyType.ed25519

    @Flag(
        help: "Do not encrypt a key that is generated: everyone who copies the file can sign."
    )
    var unencrypted = false
}

/// A role and a value, such as `timestamp=online.pem`.
struct RoleValue: ExpressibleByArgument {
    let role: SigningRole
    let value: String

    init?(argument: String) {
        guard let separator = argument.firstIndex(of: "="),
            let role = SigningRole(rawValue: String(argument[..<separator]))
        else { return nil }
        self.role = role
        value = String(argument[argument.index(after: separator)...])
        if value.isEmpty { return nil }
    }
}

/// A role and a number, such as `root=2`.
struct RoleNumber: ExpressibleByArgument {
    let role: SigningRole
    let number: Int

    init?(argument: String) {
        guard let parts = RoleValue(argument: argument), let number = Int(parts.value), number > 0
        else { return nil }
        role = parts.role
        self.number = number
    }
}

/// Thresholds and expiry periods, for commands that create root metadata.
struct RootOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The number of keys that must sign for a role. Default: 1, or unchanged.",
            valueName: "role=number"
        )
    )
    var threshold: [RoleNumber] = []

    @Option(
        help: ArgumentHelp(
            "The number of days for which metadata of a role is valid. Default: root 400, targets 200, "
                + "snapshot and timestamp 14, or unchanged.",
            valueName: "role=days"
        )
    )
    var expiry: [RoleNumber] = []

    @Flag(
        help: """
            For publishers without a timer: snapshot and timestamp are valid for 180 days. This weakens \
            the protection against freeze attacks: for as long, an attacker can present an old manifest \
            as the current one.
            """
    )
    var offlineSigning = false

    /// Applies the options to the content of root metadata.
    func apply(to content: inout RootContent) {
        for entry in threshold { content.roles[entry.role]?.threshold = entry.number }
        if offlineSigning {
            for role in SigningRole.allCases {
                content.periods[role] = ExpiryPeriods.offlineSigning[role]
            }
        }
        for entry in expiry { content.periods[entry.role] = entry.number }
    }

    func validate() throws {
        for entry in expiry where !ExpiryPeriods.range.contains(entry.number) {
            throw ValidationError(
                "'--expiry' takes \(ExpiryPeriods.range.lowerBound) to "
                    + "\(ExpiryPeriods.range.upperBound) days."
            )
        }
    }
}
