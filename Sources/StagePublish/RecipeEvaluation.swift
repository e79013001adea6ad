package import StageModel
package import SystemPackage

/// The files that a recipe selects: all entries of the future pack.
///
/// Sizes and types are those at the time of evaluation; code that reads the files later must check for
/// changes.
package struct RecipeEvaluation: Sendable {
    /// An entry of the pack.
    package struct Entry: Hashable, Sendable {
        /// The path and type of the entry in the pack; never a copy.
        package var content: ContentEntry
        /// The file size; 0 for directories and links.
        package var size: ByteCount
        /// The source path as written in the recipe; an implied parent directory has the source of one of its
        /// entries.
        package var source: String
        /// The directory that the source path is relative to; empty for the working directory.
        package var root: FilePath

        /// The path to read the entry from.
        ///
        /// Not stored: paths are most of the memory of hundreds of thousands of entries.
        package var file: FilePath { Self.located(source, in: root) }

        /// Returns the path to read a source from.
        static func located(_ source: String, in root: FilePath) -> FilePath {
            source == "." && !root.isEmpty ? root : root.pushing(FilePath(source))
        }
    }

    /// Valid content that is probably unintended.
    package enum Warning: Hashable, Sendable {
        /// Two paths that are equal on file systems that ignore case or Unicode normal forms.
        case nameCollision(ContentPath, ContentPath)
        /// A link to a path that the pack does not contain.
        case danglingLink(ContentPath, target: String)
        /// An exclusion of a single path that does not exist.
        case unusedExclusion(String)

        /// The content that the warnings of this case are about, as a plural noun phrase.
        package var kind: String {
            switch self {
            case .nameCollision: "names that are one where the file system ignores case"
            case .danglingLink: "links to paths that the pack does not have"
            case .unusedExclusion: "exclusions of nothing"
            }
        }
    }

    /// The recipe.
    package let recipe: Recipe
    /// The entries, ordered by the bytes of their paths; directories are included and precede their entries.
    package let entries: [Entry]
    /// The warnings.
    package let warnings: [Warning]

    /// The sum of the file sizes.
    package var installedSize: ByteCount { entries.reduce(.zero) { $0 + $1.size } }

    /// The number of files and links.
    package var fileCount: Int { entries.count { $0.content.kind != .directory } }

    /// The number of directories, including implied parents.
    package var directoryCount: Int { entries.count - fileCount }

    /// Evaluates the recipe; `directory` is the directory that its sources or its `sourceRoot` are relative
    /// to, empty for the working directory.
    ///
    /// Opens every file once to detect unreadable ones.
    ///
    /// - Throws: ``PackagingError``.
    package init(_ recipe: Recipe, in directory: FilePath = "") throws(PackagingError) {
        let root = recipe.sourceRoot.map { directory.pushing(FilePath($0)) } ?? directory
        var walk = SelectorWalk(root: root, selectors: recipe.selectors)
        var idle: [String] = []
        for (index, selector) in recipe.selectors.enumerated() where try walk.select(selector) == 0
        {
            if case .exclusion = selector { continue }
            idle.append("fileSelectors[\(index)]: \(selector.summary)")
        }
        // Before selectors of nothing, since one may have selected only these.
        guard walk.refused.isEmpty else { throw .notAllowed(walk.refused) }
        guard idle.isEmpty else { throw .nothingSelected(idle) }
        self.recipe = recipe
        entries = try EntryValidator.ordered(walk.found)
        try EntryValidator.checkLinks(entries)
        warnings =
            EntryValidator.warnings(entries) + walk.unusedExclusions.map(Warning.unusedExclusion)
        try EntryValidator.checkLimits(entries, size: installedSize, count: fileCount)
    }
}

extension RecipeEvaluation.Warning: CustomStringConvertible {
    /// The warning, as a sentence fragment.
    package var description: String {
        switch self {
        case .nameCollision(let first, let second):
            "'\(first)' and '\(second)' are one name where the file system ignores case"
        case .danglingLink(let path, let target):
            "the link '\(path)' leads to '\(target.forDisplay())', which the pack does not have"
        case .unusedExclusion(let text):
            "fileExclusion '\(text.forDisplay())' excludes nothing"
        }
    }
}
