import Glibc
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A publisher's files, in the directory of the running test.
struct SourceTree {
    let path: FilePath

    /// Creates the tree `name`.
    init(_ name: String = "tree") throws {
        path = try TemporaryDirectory.required().path.appending(name)
        _ = try Directory.make(path)
    }

    /// Writes a file and creates its parent directories.
    func file(_ name: String, _ content: String = "", mode: mode_t = 0o644) throws {
        try file(name, Array(content.utf8), mode: mode)
    }

    /// Writes a file and creates its parent directories.
    func file(_ name: String, _ content: [UInt8], mode: mode_t = 0o644) throws {
        let file = path.pushing(FilePath(name))
        let directory = try Directory.make(file.removingLastComponent())
        let last = try #require(file.lastComponent)
        try directory.write(content, to: last, durably: false)
        try set(mode, of: name)
    }

    /// Sets the mode of a file or a directory.
    func set(_ mode: mode_t, of name: String) throws {
        let file = path.pushing(FilePath(name)).string
        let status = unsafe chmod(file, mode)
        try #require(status == 0)
    }

    /// Creates a link and its parent directories.
    func link(_ name: String, to target: String) throws {
        let link = path.pushing(FilePath(name))
        let directory = try Directory.make(link.removingLastComponent())
        try directory.createLink(FilePath(try #require(link.lastComponent)), to: target)
    }

    /// Creates a directory.
    func directory(_ name: String) throws {
        _ = try Directory.make(path.pushing(FilePath(name)))
    }

    /// Evaluates a recipe with the selectors.
    func evaluate(_ selectors: String, root: String? = nil) throws -> RecipeEvaluation {
        let more = root.map { #", "sourceRoot": "\#($0)""# } ?? ""
        let json = """
            {"assetPackID": "aurora", "downloadPolicy": {"onDemand": {}}, "fileSelectors": \
            [\(selectors)]\(more)}
            """
        return try RecipeEvaluation(try Recipe(json: Array(json.utf8)), in: path)
    }

    /// Returns the paths that a recipe with the selectors selects, with '/' for directories, '*' for
    /// executable files, '@' for links.
    func names(_ selectors: String, root: String? = nil) throws -> [String] {
        try evaluate(selectors, root: root).entries.map { entry in
            let mark =
                switch entry.content.kind {
                case .directory: "/"
                case .file(let isExecutable): isExecutable ? "*" : ""
                case .link: "@"
                case .copy: "?"
                }
            return entry.content.path.text + mark
        }
    }
}

extension RecipeEvaluation {
    /// The sizes of files and links, by path.
    var sizes: [String: Int64] {
        let files = entries.filter { $0.content.kind != .directory }
        return Dictionary(
            uniqueKeysWithValues: files.map { ($0.content.path.text, $0.size.rawValue) }
        )
    }
}
