package import StageModel
import SystemPackage

extension Recipe {
    /// The maximum number of bytes of a recipe: 1 MiB.
    package static let byteLimit = 1 << 20

    /// Parses a recipe: JSON that may contain comments and trailing commas.
    ///
    /// - Throws: ``ManifestError`` for the first invalid member. Unknown members are errors too, because they
    ///   are usually misspelt.
    package init(json: [UInt8]) throws(ManifestError) {
        guard json.count <= Self.byteLimit else {
            throw .tooLarge(limit: ByteCount(Self.byteLimit), found: ByteCount(json.count))
        }
        self = try ManifestError.decode(
            RecipeDocument.self,
            from: RelaxedJSON.strict(json),
            limit: Self.byteLimit
        ).recipe
    }
}

/// A recipe in JSON.
private struct RecipeDocument: JSONReadable {
    var recipe: Recipe

    enum Key: String, CodingKey, CaseIterable {
        case assetPackID, downloadPolicy, fileSelectors, platforms, language, sourceRoot, userInfo
    }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        try members.checkForUnknownMembers()
        recipe = Recipe(
            pack: try members.text(.assetPackID) { text throws(ValueError) in try PackID(text) },
            policy: try members.value(PolicyDocument.self, for: .downloadPolicy).policy,
            selectors: try members.values(
                SelectorDocument.self,
                for: .fileSelectors,
                expected: "an array of selectors",
                atMost: 10_000
            ).map(\.selector)
        )
        guard !recipe.selectors.isEmpty else {
            throw members.fault(
                for: .fileSelectors,
                ValueError(expected: "at least one selector", found: "none")
            )
        }
        recipe.platforms = try members.strings(.platforms, atMost: 16)
        if members.has(.language) {
            recipe.language = try members.text(.language, as: SelectorText.language)
        }
        if members.has(.sourceRoot) {
            recipe.sourceRoot = try members.text(.sourceRoot, as: SelectorText.source)
        }
        recipe.userInfo = try members.userInfo(.userInfo)
    }
}

/// A selector in JSON.
private struct SelectorDocument: JSONReadable {
    var selector: FileSelector

    enum Key: String, CodingKey, CaseIterable {
        case file, directory, filePattern, fileSource, fileDestination, directorySource
        case directoryDestination, fileExclusion
    }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        try members.checkForUnknownMembers()
        let keys = Key.allCases.filter { members.has($0) }
        switch keys {
        case [.file]:
            let path = try members.text(.file, as: SelectorText.filePath)
            selector = .file(source: path.text, destination: path)
        case [.directory]:
            let path = try members.text(.directory, as: SelectorText.directoryPath)
            selector = .directory(source: path?.text ?? ".", destination: path)
        case [.fileSource, .fileDestination]:
            selector = .file(
                source: try members.text(.fileSource, as: SelectorText.source),
                destination: try members.text(.fileDestination, as: SelectorText.filePath)
            )
        case [.directorySource, .directoryDestination]:
            selector = .directory(
                source: try members.text(.directorySource, as: SelectorText.source),
                destination: try members.text(.directoryDestination, as: SelectorText.directoryPath)
            )
        case [.filePattern]:
            selector = .pattern(try members.text(.filePattern, as: SelectorText.pattern))
        case [.fileExclusion]:
            selector = .exclusion(
                try members.text(.fileExclusion) { text throws(ValueError) in
                    try GlobPattern(text)
                }
            )
        default:
            let found = keys.map { "'\($0.rawValue)'" }.joined(separator: " and ")
            throw node.fault(
                ValueError(expected: Self.forms, found: found.isEmpty ? "none" : found)
            )
        }
    }

    private static let forms = """
        one of 'file', 'directory', 'filePattern', 'fileSource' with 'fileDestination', \
        'directorySource' with 'directoryDestination', 'fileExclusion'
        """
}

/// The rules for strings in a recipe.
private enum SelectorText {
    /// Parses a path that is the same on disk and in the pack.
    static func filePath(_ text: String) throws(ValueError) -> ContentPath {
        guard text.utf8.last != UInt8(ascii: "/"), let path = try ContentPath.normalizing(text)
        else {
            throw ValueError(expected: "the path of a file", text: text)
        }
        return path
    }

    /// Parses a path that is the same on disk and in the pack; `nil` for the root.
    static func directoryPath(_ text: String) throws(ValueError) -> ContentPath? {
        try ContentPath.normalizing(text)
    }

    /// Parses any path on disk.
    static func source(_ text: String) throws(ValueError) -> String {
        guard !text.isEmpty, !text.utf8.contains(0) else {
            throw ValueError(expected: "a path", text: text)
        }
        let path = FilePath(text).lexicallyNormalized()
        return path.isEmpty ? "." : path.string
    }

    /// Parses a pattern for paths below the root.
    static func pattern(_ text: String) throws(ValueError) -> GlobPattern {
        let pattern = try GlobPattern(text)
        guard !pattern.isAbsolute, !text.pathComponents.contains("..") else {
            throw ValueError(expected: "a relative pattern without '..' components", text: text)
        }
        return pattern
    }

    /// Parses a language tag: subtags of letters and digits, separated by '-'.
    static func language(_ text: String) throws(ValueError) -> String {
        let subtags = text.split(separator: "-", omittingEmptySubsequences: false)
        let areSubtags = subtags.allSatisfy { subtag in
            (1...8).contains(subtag.utf8.count)
                && subtag.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber) }
        }
        guard areSubtags, text.utf8.count <= 35 else {
            throw ValueError(expected: "the tag of a language, such as 'pt-BR'", text: text)
        }
        return text
    }
}
