public import StageModel
public import SystemPackage

/// The files on this machine that a pack is made of.
public struct SourceTree: Equatable, Sendable {
    /// One thing that the pack gets.
    public struct Entry: Equatable, Sendable {
        /// Where it is in the pack.
        public var path: ContentPath
        /// What it is.
        public var kind: Kind

        /// Creates an entry from its parts.
        public init(path: ContentPath, kind: Kind) {
            self.path = path
            self.kind = kind
        }
    }

    /// What an entry is.
    public enum Kind: Equatable, Sendable {
        /// A regular file with the content of a file of this machine.
        case file(FilePath, size: Int64, isExecutable: Bool)
        /// A directory without anything in it.
        case directory
        /// A symbolic link.
        case link(to: LinkTarget)
    }

    /// The entries, ordered by the bytes of their paths, of which no two are the same.
    public private(set) var entries: [Entry]

    /// Creates a tree of entries in any order.
    public init(_ entries: [Entry]) {
        self.entries = entries.sorted { $0.path < $1.path }
    }
}
