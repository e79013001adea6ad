import ArgumentParser
import StageModel
import StageSigning
import SystemPackage

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
            try checkForUnsignedManifest()
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

    /// Fails for a manifest without root metadata, which would be refused as a key file.
    private func checkForUnsignedManifest() throws(CommandFailure) {
        // The argument may be a key instead of a manifest: in a signing program, in a token or in a file.
        guard !Keyring.isElsewhere(subject), !KeyFile.isKey(FilePath(subject)),
            (try? ManifestFile(subject).read()) != nil
        else { return }
        throw CommandFailure(SigningError.noRoot(path: subject), manifest: subject)
    }
}
