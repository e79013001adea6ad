import ArgumentParser
import StageModel
import StageSigning

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
