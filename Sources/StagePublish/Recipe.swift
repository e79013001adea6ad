package import StageModel

/// The definition of a pack's content, in the format of Apple's `ba-package`.
///
/// Parsed by ``init(json:)``, evaluated by ``RecipeEvaluation``.
package struct Recipe: Hashable, Sendable {
    /// The name of the pack (`assetPackID`).
    package var pack: PackID
    /// The condition under which the pack is downloaded (`downloadPolicy`).
    package var policy: DownloadPolicy
    /// The selectors, in the order of the recipe (`fileSelectors`).
    package var selectors: [FileSelector]
    /// The platforms that the pack is for; not checked here.
    package var platforms: [String] = []
    /// The language of the content (BCP 47); `nil` if unspecified.
    package var language: String?
    /// The directory that sources are relative to; `nil` for the current directory.
    package var sourceRoot: String?
    /// The publisher's data for the application, as JSON text; `nil` for none.
    package var userInfo: String?

    /// Creates a recipe from its required members.
    package init(pack: PackID, policy: DownloadPolicy, selectors: [FileSelector]) {
        self.pack = pack
        self.policy = policy
        self.selectors = selectors
    }
}

/// An element of a recipe's `fileSelectors`.
///
/// Sources are relative to the root of the recipe, but may be outside of it.
package enum FileSelector: Hashable, Sendable {
    /// A file or symbolic link (`file`, or `fileSource` with `fileDestination`).
    case file(source: String, destination: ContentPath)
    /// A directory with all its content (`directory`, or `directorySource` with `directoryDestination`); the
    /// destination `nil` is the root of the pack.
    case directory(source: String, destination: ContentPath?)
    /// The files and symbolic links below the root with matching paths (`filePattern`).
    case pattern(GlobPattern)
    /// Excludes files whose sources match, and everything below directories that match, from all other
    /// selectors (`fileExclusion`).
    case exclusion(GlobPattern)

    /// The selector's member and value, for messages.
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
