import ArgumentParser
import StageModel
import StageSigning
import SystemPackage

struct KeysCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "keys",
        abstract: "Make and show the keys of signed metadata.",
        subcommands: [
            KeysInitCommand.self, KeysGenerateCommand.self, KeysShowCommand.self,
        ]
    )
}

struct KeysInitCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "init",
        abstract: "Begin to sign a manifest.",
        discussion: """
            Writes the first root metadata, which names the keys of all roles, to \
            'metadata/1.root.json' beside the manifest, and signs the manifest. A key file that does not \
            exist is generated, encrypted under a passphrase. Applications ship with '1.root.json'.

            Keep keys out of the directory of the manifest, which is published: none is generated there, \
            and one that is there is warned of. Root keys are needed only to change keys; \
            with '--role' they can stay offline, while others sign daily.
            """
    )

    @Argument(help: "The manifest's file.", completion: .file()) var manifest: String
    @OptionGroup(title: "Keys") var signing: SigningOptions

    @Option(
        help: ArgumentHelp(
            "A key for one role: root, targets, snapshot or timestamp. May be given more than once; roles "
                + "without it have the keys of '--key'.",
            valueName: "role=key"
        ),
        completion: .file()
    )
    var role: [RoleValue] = []

    @OptionGroup(title: "Root") var root: RootOptions
    @OptionGroup(title: "New keys") var newKeys: NewKeyOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let file = ManifestFile(manifest)
        // Checked before a key is created or a passphrase is asked for.
        try file.checkNotSigned()
        try checkThresholds()
        let keyring = signing.emptyKeyring(signing: manifest)
        defer { keyring.finish() }
        var common: [RepositoryKey] = []
        for reference in signing.keys {
            common.append(try keyring.load(reference, generating: newKeys))
        }
        var roles: [SigningRole: RootContent.Role] = [:]
        for role in SigningRole.allCases {
            let own = self.role.filter { $0.role == role }
            var keys: [RepositoryKey] = []
            for entry in own { keys.append(try keyring.load(entry.value, generating: newKeys)) }
            roles[role] = RootContent.Role(keys: own.isEmpty ? common : keys)
        }
        if let role = SigningRole.allCases.first(where: { roles[$0]?.keys.isEmpty != false }) {
            throw .usage(
                "expected '--key KEYFILE' or '--role \(role.rawValue)=KEYFILE', found no key for role "
                    + "'\(role.rawValue)'"
            )
        }
        var content = RootContent(roles: roles)
        root.apply(to: &content)
        return try await file.initialize(content, with: keyring).print(asJSON: json)
    }

    /// Refuses a threshold above the number of named keys, before a key is created.
    private func checkThresholds() throws(CommandFailure) {
        for entry in root.threshold {
            let own = role.filter { $0.role == entry.role }.map(\.value)
            let count = Set(own.isEmpty ? signing.keys : own).count
            // Without any key, the later message about missing keys is clearer.
            guard count > 0, entry.number > count else { continue }
            throw CommandFailure(
                .threshold(role: entry.role, threshold: entry.number, keys: count),
                manifest: manifest
            )
        }
    }
}

struct KeysGenerateCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "generate",
        abstract: "Generate a private key.",
        discussion: """
            Writes a new file in PEM (PKCS #8) that its owner alone can read, encrypted with AES-256 and \
            scrypt under a passphrase, and prints the key's id and public key.
            """
    )

    @Argument(help: "The file to write, which must not exist.", completion: .file())
    var file: String
    @OptionGroup var new: NewKeyOptions
    @OptionGroup var passphrase: PassphraseOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let key = try Keyring(passphrase.source).generateKey(in: file, options: new)
        Console.print(change: KeyReport(key, roles: []), asJSON: json)
        return .success
    }
}

struct KeysShowCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Show keys, their ids, and the roles that they sign for.",
        discussion: """
            Of a manifest, the keys of the newest published root metadata; of a key file, a signing program \
            or a token, that key. '--public-key' prints the public key in PEM, which the holder of a \
            private key gives to others for 'stagepack rotate --add'.
            """
    )

    @Argument(help: "A signed manifest, or a key as '--key' takes it.", completion: .file())
    var subject: String
    @OptionGroup var passphrase: PassphraseOptions
    @OptionGroup var program: SigningProgramOptions
    @Flag(help: "Print public keys alone, in PEM.") var publicKey = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let reports = try self.reports()
        if publicKey {
            Console.write(reports.map(\.publicKey).joined(), to: 1)
        } else {
            Console.print(Listing(elements: reports, name: "keys"), asJSON: json)
        }
        return .success
    }

    private func reports() throws(CommandFailure) -> [KeyReport] {
        guard !Keyring.isElsewhere(subject), !KeyFile.isKey(FilePath(subject)),
            let roles = try ManifestFile(subject).signingRoles()
        else {
            let keyring = Keyring(passphrase.source, answerLimit: program.answerLimit)
            defer { keyring.finish() }
            return [KeyReport(try keyring.load(subject), roles: [])]
        }
        var reports: [KeyReport] = []
        for role in SigningRole.allCases {
            for key in roles[role]?.keys ?? [] {
                let name = KeyReport.name(of: role, threshold: roles[role]?.threshold ?? 1)
                if let index = reports.firstIndex(where: { $0.id == key.id }) {
                    reports[index].roles.append(name)
                } else {
                    reports.append(KeyReport(key, roles: [name]))
                }
            }
        }
        return reports
    }
}

/// Output of `keys` for one key.
struct KeyReport: Encodable, CustomStringConvertible {
    /// The key ID: the SHA-256 of the key's canonical form.
    var id: String
    /// The signature scheme.
    var scheme: String
    /// The public key in PEM, or as the metadata contains it if its type is unknown.
    var publicKey: String
    /// The roles that the key signs for.
    var roles: [String]

    init(_ key: RepositoryKey, roles: [String]) {
        id = key.id
        scheme = key.scheme
        publicKey = key.pem ?? key.text
        self.roles = roles
    }

    static func name(of role: SigningRole, threshold: Int) -> String {
        threshold == 1
            ? role.rawValue : "\(role.rawValue) (\(threshold.quantity(of: "key")) must sign)"
    }

    var description: String {
        let roles = roles.isEmpty ? "" : "\nroles: \(roles.joined(separator: ", "))"
        return "key: \(id)\nscheme: \(scheme.forDisplay())\(roles)\n\(publicKey.forDisplayLines)"
    }
}

extension String {
    /// The text, with each line escaped for display on a terminal.
    fileprivate var forDisplayLines: String {
        split(separator: "\n").map { String($0).forDisplay() }.joined(separator: "\n")
    }
}
