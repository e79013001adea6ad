import ArgumentParser
import StageModel
import StagePublish
import StageSystem

struct ManifestCreateCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "create",
        abstract: "Begin a manifest without packs."
    )

    @Option(help: ArgumentHelp("The application that the packs are for.", valueName: "id"))
    var application: String

    @Option(
        name: .customLong("base-url"),
        help: ArgumentHelp(
            "The base of relative URLs of archives. Given more than once, the others are mirrors. "
                + "Default: the URL of the manifest.",
            valueName: "url"
        )
    )
    var baseURLs: [String] = []

    @OptionGroup var file: NewFileOptions
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    var messages: MessageOptions? { messageOptions }
    var printsJSON: Bool { false }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let id: ApplicationID
        do throws(ValueError) {
            id = try ApplicationID(application)
        } catch {
            throw .usage("--application: \(error)")
        }
        let document: ManifestDocument
        do throws(ManifestError) {
            document = try ManifestDocument(application: id, baseURLs: baseURLs)
        } catch {
            throw .usage("--base-url: \(error)")
        }
        try file.write(document.json())
        return .success
    }
}
