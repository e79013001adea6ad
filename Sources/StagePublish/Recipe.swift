public import StageModel

/// What goes into a pack, as Apple's `ba-package` reads it.
///
/// Read by ``init(json:)``; carried out by ``RecipeEvaluation``.
public struct Recipe: Hashable, Sendable {
    /// The name of the pack (`assetPackID`).
    public var pack: PackID
    /// When the pack is fetched (`downloadPolicy`).
    public var policy: DownloadPolicy
    /// What is selected, in the order of the recipe (`fileSelectors`).
    public var selectors: [FileSelector]
    /// The platforms that the pack is meant for; not judged here.
    public var platforms: [String] = []
    /// The language of the content (BCP 47); `nil` for none in particular.
    public var language: String?
    /// The directory that sources are relative to; `nil` for the current one.
    public var sourceRoot: String?
    /// Whatever the publisher wants to tell the application, as JSON text; `nil` for nothing.
    public var userInfo: String?

    /// Creates a recipe from what it cannot do without.
    public init(pack: PackID, policy: DownloadPolicy, selectors: [FileSelector]) {
        self.pack = pack
        self.policy = policy
        self.selectors = selectors
    }
}

/// One element of a recipe's `fileSelectors`.
///
/// Sources are relative to the root of the recipe; what they name need not be below it.
public enum FileSelector: Hashable, Sendable {
    /// One file or symbolic link (`file`, or `fileSource` with `fileDestination`).
    case file(source: String, destination: ContentPath)
    /// A directory with everything below it (`directory`, or `directorySource` with
    /// `directoryDestination`); the destination `nil` is the root of the pack.
    case directory(source: String, destination: ContentPath?)
    /// The files and symbolic links below the root whose paths match (`filePattern`).
    case pattern(GlobPattern)
    /// What no other selector takes: the files whose source matches, and whatever is below the
    /// directories that do (`fileExclusion`).
    case exclusion(GlobPattern)

    /// The member that says what is selected, and its value; for messages.
    var summary: String {
        switch self {
        case .file(let source, let destination):
            source == destination.text ? "file '\(source)'" : "fileSource '\(source)'"
        case .directory(let source, let destination):
            source == destination?.text ?? "."
                ? "directory '\(source)'" : "directorySource '\(source)'"
        case .pattern(let pattern): "filePattern '\(pattern.text)'"
        case .exclusion(let pattern): "fileExclusion '\(pattern.text)'"
        }
    }
}
