/// A name that is also a file name: of packs, applications and application groups.
///
/// 1 to 128 ASCII letters, digits, `.`, `-` and `_`, starting with a letter or digit. Therefore a name is
/// never `..`, a hidden file or a command-line option, and needs no quoting in a shell or a URL.
public protocol Identifier: Hashable, Sendable, Codable, Comparable, CustomStringConvertible {
    /// The text of the identifier.
    var text: String { get }

    /// Creates an identifier from text that is known to obey the rules.
    init(unchecked text: String)
}

extension Identifier {
    /// Creates an identifier from text.
    ///
    /// - Throws: ``ValueError`` if the text breaks the rules of ``Identifier``.
    public init(_ text: String) throws(ValueError) {
        guard Self.isValid(text) else {
            throw ValueError(
                expected: "1 to 128 ASCII letters, digits, '.', '-' or '_', "
                    + "beginning with a letter or digit",
                text: text
            )
        }
        self.init(unchecked: text)
    }

    private static func isValid(_ text: String) -> Bool {
        guard (1...128).contains(text.utf8.count), let first = text.utf8.first else { return false }
        return first.isLetterOrDigit
            && text.utf8.allSatisfy { $0.isLetterOrDigit || $0.isJoiner }
    }

    /// The text itself.
    public var description: String { text }

    /// Orders identifiers by their bytes.
    public static func < (left: Self, right: Self) -> Bool { left.text < right.text }

    /// Decodes an identifier from a string.
    public init(from decoder: any Decoder) throws {
        self = try decoder.value { text throws(ValueError) in try Self(text) }
    }

    /// Encodes the identifier as a string.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(text)
    }
}

/// The name of an asset pack, unique within its application group.
public struct PackID: Identifier {
    /// The text of the name.
    public let text: String

    /// Creates a name from text that is known to obey the rules of ``Identifier``.
    public init(unchecked text: String) { self.text = text }
}

/// The name of an application, by convention in reverse domain order.
public struct ApplicationID: Identifier {
    /// The text of the name.
    public let text: String

    /// Creates a name from text that is known to obey the rules of ``Identifier``.
    public init(unchecked text: String) { self.text = text }
}

/// The name of an application group: applications and processes that share a container.
public struct ApplicationGroupID: Identifier {
    /// The text of the name.
    public let text: String

    /// Creates a name from text that is known to obey the rules of ``Identifier``.
    public init(unchecked text: String) { self.text = text }
}

extension UInt8 {
    /// Indicates whether this is `.`, `-` or `_`.
    fileprivate var isJoiner: Bool {
        self == UInt8(ascii: ".") || self == UInt8(ascii: "-") || self == UInt8(ascii: "_")
    }

    fileprivate var isLetterOrDigit: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"): true
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"): true
        default: false
        }
    }
}
