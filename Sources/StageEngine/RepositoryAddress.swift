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
        // Compares bytes: in Swift, a slash and a combining character after it form one `Character`.
        let whole = url.utf8.prefix { $0 != UInt8(ascii: "#") }
        let path = whole.prefix { $0 != UInt8(ascii: "?") }
        let end = path.lastIndex(of: UInt8(ascii: "/")).map { path.index(after: $0) }
        let start = end ?? path.startIndex
        query = String(Substring(whole[path.endIndex...]))
        directory = String(Substring(path[..<start]))
        let name = String(Substring(path[start...]))
        target = TargetPath(name.percentDecoded ?? name)
    }

    /// Returns the URL of a metadata file.
    func url(ofMetadata path: String) -> String { directory + "metadata/" + path + query }

    /// Returns the URL of a target.
    func url(ofTarget location: String) -> String { directory + location + query }
}
