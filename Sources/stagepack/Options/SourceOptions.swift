import ArgumentParser
import FoundationEssentials
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// The options for the source of packs and their container.
struct SourceOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The manifest. Given more than once, the others are mirrors.",
            valueName: "url"
        ),
        completion: .file(extensions: ["json"])
    )
    var manifest: [String] = []

    @Option(
        help: ArgumentHelp(
            "The root metadata to verify the manifest with, where no registration names it.",
            valueName: "file"
        ),
        completion: .file(extensions: ["json"])
    )
    var root: String?

    @Option(
        help: ArgumentHelp(
            "The registered application that the packs belong to.",
            valueName: "id"
        ),
        completion: ApplicationCompletion.kind
    )
    var app: String?

    @Option(
        help: ArgumentHelp(
            "The container. Default: that of the application's group, for the system when "
                + "run by root, else for the user.",
            valueName: "dir"
        ),
        completion: .directory,
        transform: Self.directory
    )
    var container: FilePath?

    @Option(
        help: ArgumentHelp(
            "The installed version of the application. Default: that of its registration.",
            valueName: "version"
        )
    )
    var applicationVersion: String?

    /// Parses the path of a directory, and makes it absolute.
    static func directory(_ text: String) throws -> FilePath {
        guard !text.isEmpty else { throw ValidationError("expected a directory, found nothing") }
        let path = FilePath(text).absolute
        // A working directory that is not UTF-8 would be printed as another path.
        guard FilePath(path.string) == path else {
            throw ValidationError(
                "the path of the working directory is not UTF-8: pass an absolute path"
            )
        }
        return path
    }

    /// The URLs of `--manifest`; the path of an existing file becomes a file URL.
    var manifestURLs: [String] {
        get throws(CommandFailure) {
            var urls: [String] = []
            for text in manifest {
                if text.endOfScheme != nil {
                    let shown = text.withoutUser
                    guard shown == text else {
                        throw .usage(
                            "--manifest: expected a URL without a user's name and password, found "
                                + "'\(shown.forDisplay())': pass them with --netrc-file"
                        )
                    }
                    do throws(ValueError) {
                        try URLReference.check(text, form: .absolute)
                    } catch {
                        throw .usage("--manifest: \(error)")
                    }
                    urls.append(text)
                } else if FileStatus.exists(FilePath(text)) {
                    urls.append(URL(filePath: text).absoluteURL.absoluteString)
                } else {
                    throw .usage(
                        "--manifest: expected a URL or an existing file, found '\(text.forDisplay())'"
                    )
                }
            }
            return urls
        }
    }

    mutating func validate() throws {
        if !manifest.isEmpty, app != nil {
            throw ValidationError("--manifest and --app cannot be combined.")
        }
        if root != nil, app != nil {
            throw ValidationError("--root and --app cannot be combined.")
        }
    }
}
