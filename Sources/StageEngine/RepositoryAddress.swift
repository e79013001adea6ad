import StageModel
import StageTrust

/// URLs of the files in a repository, derived from the URL of its manifest.
///
/// Metadata is in `metadata/` beside the manifest. The file name of the manifest is its target path. A query
/// of the URL is added to the URL of each file.
struct RepositoryAddress {
    /// The URL of the directory that contains the manifest, with a trailing slash.
    private let directory: String
    private let query: String
    /// The target path of the manifest.
    let target: TargetPath

    /// Creates the value from an absolute URL of the manifest.
    init(_ url: String) {
        let whole = url.prefix { $0 != "#" }
        let path = whole.prefix { $0 != "?" }
        let end = path.lastIndex(of: "/").map(path.index(after:)) ?? path.startIndex
        query = String(whole[path.endIndex...])
        directory = String(path[..<end])
        let name = String(path[end...])
        target = TargetPath(name.percentDecoded ?? name)
    }

    /// Returns the URL of a metadata file.
    func url(ofMetadata path: String) -> String { directory + "metadata/" + path + query }

    /// Returns the URL of a target.
    func url(ofTarget location: String) -> String { directory + location + query }
}
