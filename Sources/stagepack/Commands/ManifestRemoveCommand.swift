import ArgumentParser
import StageModel
import StagePublish
import StageSystem

struct ManifestRemoveCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "remove",
        abstract: "Take a pack out of a manifest.",
        discussion: """
            The manifest's revision goes up. Clients remove the pack when they have the manifest; its archive stays \
            where it is.
            """
    )

    @Argument(help: "The manifest's file.", completion: .file()) var manifest: String
    @Argument(
        help: "The pack.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    ) var pack: PackID

    @OptionGroup(title: "Keys") var signing: SigningOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let file = ManifestFile(manifest)
        let keyring = try signing.keyring(for: file)
        defer { keyring.finish() }
        let (document, _) = try await file.change { document throws(ManifestEditError) in
            try document.remove(pack)
            return true
        }
        let report = ManifestRemovalReport(
            manifest: manifest,
            revision: document.manifest.revision,
            pack: pack
        )
        return try await file.conclude(report, signing: keyring, asJSON: json)
    }
}

/// Output of `manifest remove`.
private struct ManifestRemovalReport: Encodable, CustomStringConvertible {
    var manifest: String
    var revision: Int
    var pack: PackID

    var description: String {
        "\(pack): removed from \(manifest.forDisplay()), revision \(revision)"
    }
}
