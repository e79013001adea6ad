public import StageModel
public import SystemPackage

/// What a recipe selects from a directory: everything that its pack is going to hold.
///
/// What it says of files is what they were when it was made; whoever reads them has to compare.
public struct RecipeEvaluation: Sendable {
    /// One thing of the pack.
    public struct Entry: Hashable, Sendable {
        /// Its path in the pack, and what it is: never a copy.
        public var content: ContentEntry
        /// The number of its bytes; none for directories and links.
        public var size: ByteCount
        /// Where it comes from, as the recipe writes it; a directory that only destinations name has
        /// the source of something in it.
        public var source: String
        /// Where it is to be read.
        public var file: FilePath
    }

    /// Something that is allowed, but hardly meant.
    public enum Warning: Hashable, Sendable {
        /// Two paths that are one where the file system folds case or Unicode's normal forms.
        case twins(ContentPath, ContentPath)
        /// A link to a path that the pack does not have.
        case danglingLink(ContentPath, target: String)
        /// An exclusion of one path that nothing has.
        case idleExclusion(String)
    }

    /// The recipe.
    public let recipe: Recipe
    /// The entries, ordered by the bytes of their paths: each directory is there, and before what is
    /// in it.
    public let entries: [Entry]
    /// What is hardly meant.
    public let warnings: [Warning]

    /// The sum of the sizes of files.
    public var installedSize: ByteCount { entries.reduce(.zero) { $0 + $1.size } }

    /// How many files and links there are.
    public var fileCount: Int { entries.count { $0.content.kind != .directory } }

    /// Finds what the recipe selects; `directory` is what its sources, or its `sourceRoot`, are
    /// relative to, empty for the working directory.
    ///
    /// Every file is opened once, so that one that cannot be read is found here.
    ///
    /// - Throws: ``PackagingError``.
    public init(_ recipe: Recipe, in directory: FilePath = "") throws(PackagingError) {
        let root = recipe.sourceRoot.map { directory.pushing(FilePath($0)) } ?? directory
        var walk = SelectorWalk(root: root, recipe.selectors)
        var idle: [String] = []
        for (index, selector) in recipe.selectors.enumerated() where try walk.select(selector) == 0
        {
            if case .exclusion = selector { continue }
            idle.append("fileSelectors[\(index)]: \(selector.summary)")
        }
        guard idle.isEmpty else { throw .nothingSelected(idle) }
        self.recipe = recipe
        entries = try EntryCheck.ordered(walk.found)
        try EntryCheck.checkLinks(entries)
        warnings = EntryCheck.warnings(entries) + walk.idleExclusions.map(Warning.idleExclusion)
        try EntryCheck.checkLimits(installedSize, fileCount)
    }
}

extension RecipeEvaluation.Warning: CustomStringConvertible {
    /// The warning, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .twins(let first, let second):
            "'\(first)' and '\(second)' are one name where the file system ignores case"
        case .danglingLink(let path, let target):
            "the link '\(path)' leads to '\(target.forDisplay())', which the pack does not have"
        case .idleExclusion(let text):
            "fileExclusion '\(text.forDisplay())' excludes nothing"
        }
    }
}
