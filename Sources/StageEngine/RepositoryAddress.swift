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
        target = TargetPath(Self.decoded(name))
    }

    /// The text with percent-encoded bytes decoded (RFC 3986, section 2.1); as it is if that is not UTF-8.
    private static func decoded(_ text: String) -> String {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            let digits = rest.prefix(2)
            if byte == UInt8(ascii: "%"), digits.count == 2,
                let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 16)
            {
                bytes.append(value)
                rest = rest.dropFirst(2)
            } else {
                bytes.append(byte)
            }
        }
        return String(validating: bytes, as: UTF8.self) ?? text
    }

    /// The URL of a file of metadata, by its path.
    func url(ofMetadata path: String) -> String { directory + "metadata/" + path + query }

    /// The URL of a target, by its location.
    func url(ofTarget location: String) -> String { directory + location + query }
}
