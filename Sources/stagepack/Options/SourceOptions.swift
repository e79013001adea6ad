import ArgumentParser
import StageSystem
import SystemPackage

/// Where the packs are described, and where they are kept.
struct SourceOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The manifest. Given more than once, the others are mirrors.",
            valueName: "url"
        )
    )
    var manifest: [String] = []

    @Option(
        help: ArgumentHelp(
            "The registered application whose packs are meant.",
            valueName: "id"
        )
    )
    var app: String?

    @Option(
        help: ArgumentHelp(
            "The container. Without it: the one of the application's group, for the system when "
                + "run by root, else for the user.",
            valueName: "dir"
        ),
        completion: .directory,
        transform: { FilePath($0).absolute }
    )
    var container: FilePath?

    @Option(
        help: ArgumentHelp(
            "The installed version of the application, where no registration tells it.",
            valueName: "version"
        )
    )
    var applicationVersion: String?

    mutating func validate() throws {
        if !manifest.isEmpty, app != nil {
            throw ValidationError("--manifest and --app exclude each other.")
        }
    }
}
