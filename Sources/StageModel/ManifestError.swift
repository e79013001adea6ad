/// Why bytes are not a manifest or a registration.
@nonexhaustive
public enum ManifestError: Error, Equatable, Sendable {
    /// The bytes are not JSON.
    case notJSON(String)
    /// The format is of a later major version.
    case unknownVersion(found: Int, known: Int)
    /// A member is missing, of another type, or has a value that is not allowed; `member` is its path,
    /// such as `packs[3].archive.sha256`.
    case invalid(member: String, ValueError)
}

extension ManifestError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .notJSON(let detail): "not JSON: \(detail.forDisplay())"
        case .unknownVersion(let found, let known):
            "format version \(found), expected \(known): update stagepack"
        case .invalid(let member, let fault): "\(member): \(fault)"
        }
    }
}
