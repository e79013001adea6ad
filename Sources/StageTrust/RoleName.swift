public import StageModel

/// The name of a role that signs metadata.
///
/// Publishers choose the names of delegated roles, which may contain any character; ``fileName`` is safe in a
/// directory and in a URL.
public struct RoleName: ExactText {
    /// The name as in metadata.
    public let text: String

    /// The role that lists the keys of all top-level roles.
    public static let root = RoleName(known: "root")
    /// The role that names the current snapshot, renewed most often.
    public static let timestamp = RoleName(known: "timestamp")
    /// The role that names the current version of all targets metadata.
    public static let snapshot = RoleName(known: "snapshot")
    /// The role that names targets, or delegates them.
    public static let targets = RoleName(known: "targets")

    /// The maximum number of bytes of a file name, without version and extension.
    private static let lengthLimit = 200

    private init(known text: String) { self.text = text }

    /// Creates the name of a delegated role.
    ///
    /// - Throws: ``ValueError`` for an empty or overlong name, and for the name of a top-level role.
    public init(delegated text: String) throws(ValueError) {
        self.text = text
        guard !text.isEmpty, text.percentEncoded().utf8.count <= Self.lengthLimit else {
            throw ValueError(
                expected: "a role's name of 1 to \(Self.lengthLimit) bytes when percent-encoded",
                text: text
            )
        }
        guard ![.root, .timestamp, .snapshot, .targets].contains(self) else {
            throw ValueError(expected: "a name that no top-level role has", text: text)
        }
    }

    /// The file name of the role without a version, such as `targets.json`: a single path component of ASCII
    /// characters.
    public var fileName: String { text.percentEncoded() + ".json" }

    /// The name under which a snapshot lists the role's metadata.
    var listedName: String { text + ".json" }
}

extension RoleName: CustomStringConvertible {
    /// The name, safe to print on a terminal.
    public var description: String { text.forDisplay(atMost: 60) }
}
