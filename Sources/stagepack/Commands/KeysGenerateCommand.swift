import ArgumentParser
import StageModel

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
        Console.print(KeyReport(key, roles: []), asJSON: json)
        return .success
    }
}
