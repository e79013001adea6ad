/// Why bytes are not a manifest, a registration or a recipe.
@nonexhaustive
public indirect enum ManifestError: Error, Equatable, Sendable {
    /// The bytes are not JSON; the text says why and, where that is known, in which line and column.
    case notJSON(String)
    /// The format is of a major version that this code does not read.
    case unknownVersion(found: Int, known: Int)
    /// A member is missing, of another type, or has a value that is not allowed; `member` is its path,
    /// such as `packs[3].archive.sha256`.
    case invalid(member: String, ValueError)
    /// There are more bytes than are read.
    case tooLarge(limit: ByteCount, found: ByteCount)
    /// A value that has to be unique was used before: `member` repeats what `first` has.
    case duplicate(member: String, first: String, value: String)
}

extension ManifestError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .notJSON(let detail):
            "not JSON: \(detail.forDisplay())"
        case .unknownVersion(let found, let known):
            "format version \(found), expected \(known)"
        case .invalid(let member, let fault):
            "\(member.forDisplay()): \(fault)"
        case .tooLarge(let limit, let found):
            "expected at most \(limit.rawValue.quantity(of: "byte")), found \(found.rawValue)"
        case .duplicate(let member, let first, let value):
            "\(member): expected a value of its own, found '\(value.forDisplay())' of \(first)"
        }
    }
}
