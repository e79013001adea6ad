import ArgumentParser
import StageModel
import StagePublish
import StageSystem

struct ManifestSetPolicyCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "set-policy",
        abstract: "Change the download policy of a pack in a manifest.",
        discussion: """
            Increases the manifest's revision. A later 'stagepack manifest add' replaces the policy \
            with that of the recipe.
            """
    )

    /// The policies, as spelt in a manifest.
    enum Policy: String, ExpressibleByArgument, CaseIterable {
        case essential, prefetch, onDemand
    }

    /// The events, as spelt in a manifest.
    enum Event: String, ExpressibleByArgument, CaseIterable {
        case firstInstallation, subsequentUpdate
    }

    @Argument(help: "The manifest's file.", completion: .file()) var manifest: String
    @Argument(
        help: "The pack.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    ) var pack: PackID
    @Argument(help: "The policy.") var policy: Policy

    @Option(
        help: ArgumentHelp("The event to set the policy for. Default: all.", valueName: "event")
    )
    var event: [Event] = []

    @OptionGroup(title: "Keys") var signing: SigningOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    mutating func validate() throws {
        if policy == .onDemand, !event.isEmpty {
            throw ValidationError("'onDemand' has no '--event'.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let policy = downloadPolicy
        let file = ManifestFile(manifest)
        let keyring = try signing.keyring(for: file)
        defer { keyring.finish() }
        let (document, isChanged) = try await file.change {
            document throws(ManifestEditError) in try document.setPolicy(policy, of: pack)
        }
        let report = ManifestEditReport(
            file: manifest,
            document: document,
            pack: pack,
            isChanged: isChanged
        )
        return try await file.conclude(report, signing: keyring, asJSON: json)
    }

    private var downloadPolicy: DownloadPolicy {
        let named = Set(event.compactMap { InstallationEvent(rawValue: $0.rawValue) })
        let events = named.isEmpty ? Set(InstallationEvent.allCases) : named
        return switch policy {
        case .essential: .essential(events)
        case .prefetch: .prefetch(events)
        case .onDemand: .onDemand
        }
    }
}
