/// The arguments that the conformance suite passes.
struct ClientArguments {
    /// The targets to download.
    struct Targets {
        var names: [String]
        /// The base URL of targets, with a slash at its end.
        var url: String
        var directory: String
    }

    enum Command {
        /// Store the trusted root at the path.
        case initialize(root: String)
        /// Update the metadata of top-level roles from a base URL.
        case refresh(url: String)
        /// Update metadata, then download targets.
        case download(url: String, Targets)
    }

    let metadataDirectory: String
    let command: Command

    init(_ arguments: [String]) throws {
        var options: [String: [String]] = [:]
        var words: [String] = []
        var rest = arguments[...]
        while let argument = rest.popFirst() {
            guard argument.hasPrefix("--") else {
                words.append(argument)
                continue
            }
            guard let value = rest.popFirst() else {
                throw ClientError("'\(argument)' needs a value")
            }
            options[argument, default: []].append(value)
        }
        func option(_ name: String) throws -> String {
            guard let value = options[name]?.last else { throw ClientError("'\(name)' is missing") }
            return value
        }
        func url(_ name: String) throws -> String {
            let value = try option(name)
            return value.hasSuffix("/") ? value : value + "/"
        }
        metadataDirectory = try option("--metadata-dir")
        switch (words.first, words.count) {
        case ("init", 2):
            command = .initialize(root: words[1])
        case ("refresh", 1):
            command = .refresh(url: try url("--metadata-url"))
        case ("download", 1):
            let targets = Targets(
                names: options["--target-name"] ?? [],
                url: try url("--target-base-url"),
                directory: try option("--target-dir")
            )
            command = .download(url: try url("--metadata-url"), targets)
        default:
            throw ClientError("expected 'init TRUSTED_ROOT', 'refresh' or 'download'")
        }
    }
}
