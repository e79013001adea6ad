/// The reason why bytes are not a valid manifest, registration or recipe.
@nonexhaustive
public indirect enum ManifestError: Error, Equatable, Sendable {
    /// The bytes are not JSON; the text says why and, if known, names line and column.
    case notJSON(String)
    /// The format has a major version that this code does not support.
    case unknownVersion(found: Int, known: Int)
    /// A member is missing, has another type, or has an invalid value; `member` is its path, such as
    /// `packs[3].archive.sha256`.
    case invalid(member: String, ValueError)
    /// The document exceeds the size limit.
    case tooLarge(limit: ByteCount, found: ByteCount)
    /// The value of `member`, which must be unique, equals that of `first`.
    case duplicate(member: String, first: String, value: String)
}

extension ManifestError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
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
            "\(member.forDisplay()): expected a value of its own, found '\(value.forDisplay())' of "
                + first.forDisplay()
        }
    }
}
