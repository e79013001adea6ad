/// The path of a file, directory or link within a pack: relative, with `/` between components.
///
/// The same rules apply to paths from archives and from indexes: valid Unicode; no empty, `.` or `..`
/// component; no control or bidirectional characters and no backslash; components of at most 255 bytes; at
/// most 1,024 bytes and 32 components in all. Therefore a path stays below the directory in which it is
/// resolved, is the same on every system, and is safe to print.
public struct ContentPath: Hashable, Sendable {
    /// The maximum number of bytes of a component.
    public static let maximumComponentLength = 255
    /// The maximum number of bytes of a path.
    public static let maximumLength = 1024
    /// The maximum number of components of a path.
    public static let maximumDepth = 32

    /// The path as text.
    public let text: String

    /// Creates a path from text that obeys the rules, without changing it.
    ///
    /// - Throws: ``ValueError`` with the violated rule.
    public init(_ text: String) throws(ValueError) {
        try Self.check(text)
        self.text = text
    }

    /// Creates a path from the name of an archive entry, or returns `nil` for the root itself.
    ///
    /// Removes one leading `./` and one trailing `/`: archives contain `./a` for `a`, and `a/` for a
    /// directory.
    ///
    /// - Throws: ``ValueError`` with the violated rule.
    public static func normalizing(_ name: String) throws(ValueError) -> ContentPath? {
        // Compared as bytes: a hostile name may have a million combining characters (`CombiningSequence`).
        if name.utf8.elementsEqual(".".utf8) || name.utf8.elementsEqual("./".utf8) { return nil }
        guard name.utf8.first == UInt8(ascii: ".") || name.utf8.last == UInt8(ascii: "/") else {
            return try ContentPath(name)
        }
        var rest = Substring(name)
        if rest.utf8.starts(with: "./".utf8) { rest = Substring(rest.utf8.dropFirst(2)) }
        if rest.utf8.last == UInt8(ascii: "/") { rest = Substring(rest.utf8.dropLast()) }
        do {
            return try ContentPath(String(rest))
        } catch {
            throw ValueError(expected: error.expected, text: name)
        }
    }

    /// Compares bytes: names that are canonically equivalent in Unicode are different files.
    public static func == (left: ContentPath, right: ContentPath) -> Bool {
        left.text.utf8.elementsEqual(right.text.utf8)
    }

    /// Equal paths have equal hashes; canonically equivalent ones have the same, too.
    public func hash(into hasher: inout Hasher) { hasher.combine(text) }

    /// The components of the path, at least one.
    public var components: [Substring] { text.pathComponents }

    /// The path of the parent directory, or `nil` if that is the root.
    public var parent: ContentPath? {
        guard let slash = text.utf8.lastIndex(of: UInt8(ascii: "/")) else { return nil }
        return ContentPath(unchecked: String(text[..<slash]))
    }

    /// Creates a path from text that is known to obey the rules.
    package init(unchecked text: String) { self.text = text }

    private static func check(_ text: String) throws(ValueError) {
        guard !text.isEmpty else { throw ValueError(expected: "a path", text: text) }
        guard text.utf8.first != UInt8(ascii: "/") else {
            throw ValueError(expected: "a relative path", text: text)
        }
        try checkCharacters(text, maximumLength: maximumLength)
        var depth = 0
        for component in text.utf8.split(
            separator: UInt8(ascii: "/"),
            omittingEmptySubsequences: false
        ) {
            depth += 1
            try checkComponent(component, of: text)
        }
        guard depth <= maximumDepth else {
            throw ValueError(
                expected: "a path of at most \(maximumDepth.quantity(of: "component"))",
                text: text
            )
        }
    }

    private static func checkComponent(
        _ component: Substring.UTF8View,
        of text: String
    ) throws(ValueError) {
        let dot = UInt8(ascii: ".")
        let count = component.count
        if count == 0 {
            throw ValueError(expected: "a path without empty components", text: text)
        }
        if count <= 2, component.allSatisfy({ $0 == dot }) {
            throw ValueError(expected: "a path without '.' and '..' components", text: text)
        }
        if count > maximumComponentLength {
            throw ValueError(
                expected:
                    "path components of at most \(maximumComponentLength.quantity(of: "byte"))",
                text: text
            )
        }
    }

    /// Checks the rules that paths and link targets share.
    static func checkCharacters(_ text: String, maximumLength: Int) throws(ValueError) {
        guard text.utf8.count <= maximumLength else {
            throw ValueError(
                expected: "a path of at most \(maximumLength.quantity(of: "byte"))",
                text: text
            )
        }
        var isPlain = true
        for byte in text.utf8 where byte < 0x20 || byte >= 0x7F || byte == UInt8(ascii: "\\") {
            if byte == UInt8(ascii: "\\") {
                throw ValueError(expected: "a path without backslashes", text: text)
            }
            isPlain = false
        }
        guard !isPlain, text.unicodeScalars.contains(where: \.isUnsafeForDisplay) else { return }
        throw ValueError(
            expected: "a path without control and bidirectional characters",
            text: text
        )
    }
}

extension ContentPath: Comparable {
    /// Orders paths by their bytes.
    public static func < (left: Self, right: Self) -> Bool {
        left.text.utf8.lexicographicallyPrecedes(right.text.utf8)
    }
}

extension ContentPath: CustomStringConvertible {
    /// The path, which is safe to print.
    public var description: String { text }
}

extension ContentPath: Codable {
    /// Decodes a path from a string.
    public init(from decoder: any Decoder) throws {
        self = try decoder.value { text throws(ValueError) in try ContentPath(text) }
    }

    /// Encodes the path as a string.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(text)
    }
}

extension StringProtocol where SubSequence == Substring {
    /// The components of a path without empty ones, split at the bytes of slashes: a slash and a combining character
    /// are one character, but two to the file system.
    package var pathComponents: [Substring] {
        Substring(self).utf8.split(separator: UInt8(ascii: "/")).map { Substring($0) }
    }
}
