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
        transform: Self.directory
    )
    var container: FilePath?

    @Option(
        help: ArgumentHelp(
            "The installed version of the application, where no registration tells it.",
            valueName: "version"
        )
    )
    var applicationVersion: String?

    /// The directory that an argument names.
    private static func directory(_ text: String) throws -> FilePath {
        guard !text.isEmpty else { throw ValidationError("expected a directory, found nothing") }
        // What is not UTF-8 comes here mended, and would be another directory.
        guard !text.unicodeScalars.contains("\u{FFFD}") else {
            throw ValidationError("expected a path in UTF-8")
        }
        return FilePath(text).absolute
    }

    mutating func validate() throws {
        if !manifest.isEmpty, app != nil {
            throw ValidationError("--manifest and --app exclude each other.")
        }
    }
}
