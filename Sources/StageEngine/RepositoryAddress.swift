import StageModel
import StageTrust

/// The addresses of a repository's files, from the URL of its manifest.
///
/// Metadata is in `metadata/` beside the manifest; the manifest is the target that its file name names. A
/// query of the URL goes with each file.
struct RepositoryAddress {
    /// The URL of the directory that the manifest is in, with a slash at its end.
    private let directory: String
    private let query: String
    /// The name of the manifest among the targets.
    let target: TargetPath

    /// Creates the addresses from an absolute URL of the manifest.
    init(_ url: String) {
        let whole = url.prefix { $0 != "#" }
        let path = whole.prefix { $0 != "?" }
        let end = path.lastIndex(of: "/").map(path.index(after:)) ?? path.startIndex
        query = String(whole[path.endIndex...])
        directory = String(path[..<end])
        let name = String(path[end...])
        target = TargetPath(name.percentDecoded ?? name)
    }

    /// The URL of a file of metadata, by its path.
    func url(ofMetadata path: String) -> String { directory + "metadata/" + path + query }

    /// The URL of a target, by its location.
    func url(ofTarget location: String) -> String { directory + location + query }
}
