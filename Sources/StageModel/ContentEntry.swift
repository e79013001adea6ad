/// An entry of a pack whose path and type obey the rules for packs.
public struct ContentEntry: Hashable, Sendable {
    /// The type of an entry.
    @nonexhaustive
    public enum Kind: Hashable, Sendable {
        /// A regular file: mode `0755` if it is executable, else `0644`.
        case file(isExecutable: Bool)
        /// A directory: mode `0755`.
        case directory
        /// A symbolic link.
        case link(to: LinkTarget)
        /// A hard link to a regular file that precedes it in the pack; installed as a copy.
        case copy(of: ContentPath)
    }

    /// The type of an entry as an archive or an index states it, before validation.
    public enum Claim: Hashable, Sendable {
        case file
        case directory
        case symbolicLink(target: String)
        case hardLink(target: String)
        /// A device, a FIFO, a socket or another type; `noun` names it with its article.
        case other(noun: String)
    }

    /// The path within the pack.
    public var path: ContentPath
    /// The type.
    public var kind: Kind

    /// Creates an entry from valid parts.
    public init(path: ContentPath, kind: Kind) {
        self.path = path
        self.kind = kind
    }

    /// Validates an entry's name, type and mode, and returns the entry.
    ///
    /// - Returns: The entry, or `nil` for the root directory itself, which archives may list.
    /// - Throws: ``ValueError`` with the violated rule.
    public static func validate(
        name: String,
        claim: Claim,
        mode: UInt32
    ) throws(ValueError) -> ContentEntry? {
        if case .other(let noun) = claim {
            throw ValueError(expected: "a file, a directory or a link", found: noun)
        }
        guard mode & 0o7000 == 0 else {
            throw ValueError(
                expected: "no set-id or sticky bits",
                found: "mode 0\(String(mode & 0o7777, radix: 8))"
            )
        }
        guard let path = try ContentPath.normalizing(name) else {
            if claim == .directory { return nil }
            throw ValueError(expected: "a directory as root", text: name)
        }
        return ContentEntry(path: path, kind: try kind(claim, at: path, mode: mode))
    }

    private static func kind(
        _ claim: Claim,
        at path: ContentPath,
        mode: UInt32
    ) throws(ValueError) -> Kind {
        switch claim {
        case .file:
            return .file(isExecutable: mode & 0o111 != 0)
        case .directory:
            return .directory
        case .symbolicLink(let target):
            return .link(to: try LinkTarget(target, of: path))
        case .hardLink(let target):
            guard let original = try ContentPath.normalizing(target), original != path else {
                throw ValueError(expected: "a hard link to another file", text: target)
            }
            return .copy(of: original)
        case .other(let noun):
            throw ValueError(expected: "a file, a directory or a link", found: noun)
        }
    }
}

/// The target of a symbolic link in a pack: a relative path that stays inside the pack.
///
/// Only its text is checked here; ``ContentLinks`` checks that it also stays inside when it leads through
/// other links of the pack.
public struct LinkTarget: Hashable, Sendable {
    /// The maximum number of bytes of a target.
    public static let maximumLength = 1024
    /// The maximum number of components of a target.
    public static let maximumDepth = 64

    /// The unmodified text of the link.
    public let text: String

    /// Creates the target of the link at `path`.
    ///
    /// - Throws: ``ValueError`` with the violated rule.
    public init(_ text: String, of path: ContentPath) throws(ValueError) {
        guard !text.isEmpty else { throw ValueError(expected: "a link to a path", text: text) }
        guard text.utf8.first != UInt8(ascii: "/") else {
            throw ValueError(expected: "a link with a relative target", text: text)
        }
        try ContentPath.checkCharacters(text, maximumLength: Self.maximumLength)
        var depth = path.text.utf8.count { $0 == UInt8(ascii: "/") }
        var count = 0
        for component in text.utf8.split(separator: UInt8(ascii: "/")) {
            count += 1
            if component.elementsEqual("..".utf8) {
                depth -= 1
            } else if !component.elementsEqual(".".utf8) {
                depth += 1
            }
            guard depth >= 0 else {
                throw ValueError(expected: "a link that stays inside the pack", text: text)
            }
            guard component.count <= ContentPath.maximumComponentLength else {
                throw ValueError(expected: "path components of at most 255 bytes", text: text)
            }
        }
        guard count <= Self.maximumDepth else {
            throw ValueError(expected: "a target of at most 64 components", text: text)
        }
        self.text = text
    }

    /// Compares bytes: targets that are canonically equivalent in Unicode lead to different files.
    public static func == (left: LinkTarget, right: LinkTarget) -> Bool {
        left.text.utf8.elementsEqual(right.text.utf8)
    }

    /// Equal targets have equal hashes; canonically equivalent ones have the same, too.
    public func hash(into hasher: inout Hasher) { hasher.combine(text) }
}
