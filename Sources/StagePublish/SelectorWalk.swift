import StageModel
import StageSystem
import SystemPackage

/// Evaluates selectors, one after the other.
struct SelectorWalk {
    /// The entries found, in the order of discovery.
    private(set) var found: [RecipeEvaluation.Entry] = []
    /// The sources that packs must not contain, each once, in the order of discovery.
    private(set) var refused: [RefusedSource] = []
    /// The bytes of their paths.
    private var refusedPaths: Set<[UInt8]> = []
    private let root: FilePath
    private var exclusions: [(pattern: GlobPattern, isUsed: Bool)]
    /// The number of components of the current selector's source that name directories outside of the root.
    private var outside = 0

    init(root: FilePath, selectors: [FileSelector]) {
        self.root = root
        exclusions = selectors.compactMap { selector in
            guard case .exclusion(let pattern) = selector else { return nil }
            return (pattern, false)
        }
    }

    /// The exclusions of single paths that have matched nothing.
    var unusedExclusions: [String] {
        exclusions.filter { !$0.isUsed && $0.pattern.isLiteral }.map(\.pattern.text)
    }

    /// Adds the entries that a selector selects, and returns their number.
    mutating func select(_ selector: FileSelector) throws(PackagingError) -> Int {
        let before = found.count
        outside = Self.componentsOutside(of: selector)
        switch selector {
        case .file(let source, let destination):
            try addFile(source, as: destination)
        case .directory(let source, let destination):
            try addDirectory(source, as: destination)
        case .pattern(let pattern):
            try addMatches(
                of: pattern,
                in: try open("."),
                at: "",
                state: pattern.start,
                belowMisnamed: nil
            )
        case .exclusion:
            break
        }
        return found.count - before
    }

    private mutating func addFile(
        _ source: String,
        as destination: ContentPath
    ) throws(PackagingError) {
        let path = FilePath(source)
        guard let name = path.lastComponent, !isExcluded(source),
            let directory = try openIfThere(path.removingLastComponent().string)
        else { return }
        let status = try PackagingError.wrapping { () throws(FileError) in
            try directory.status(FilePath(name))
        }
        guard let status else { return }
        if status.kind == .directory {
            let fault = ValueError(expected: "a file, as the selector says", found: "a directory")
            refuse(source, because: fault)
            return
        }
        try add(Leaf(name: name, kind: status.kind, source: source), in: directory, as: destination)
    }

    private mutating func addDirectory(
        _ source: String,
        as destination: ContentPath?
    ) throws(PackagingError) {
        guard !isExcluded(source), let directory = try openIfThere(source) else { return }
        if let destination { add(directory: destination, source: source) }
        try addTree(directory, at: source, as: destination)
    }

    private mutating func addTree(
        _ directory: Directory,
        at source: String,
        as destination: ContentPath?
    ) throws(PackagingError) {
        for entry in try entries(of: directory) {
            let below = Self.join(source, with: entry.path.string)
            // First: names that are not UTF-8, whose wrong bytes are replaced here, can be excluded, too.
            if isExcluded(below) { continue }
            guard let name = text(of: entry.name, in: source) else { continue }
            let inPack = destination.map { "\($0.text)/\(name)" } ?? name
            guard let target = path(inPack, of: below) else { continue }
            guard entry.kind == .directory else {
                // Equal texts share their memory; Swift treats canonically equivalent text as equal, too.
                let source = target.text.utf8.elementsEqual(below.utf8) ? target.text : below
                let leaf = Leaf(name: entry.name, kind: entry.kind, source: source)
                try add(leaf, in: directory, as: target)
                continue
            }
            add(directory: target, source: below)
            try addTree(try open(entry.name, in: directory), at: below, as: target)
        }
    }

    /// Adds the entries that a pattern selects in and below a directory.
    ///
    /// - Parameters:
    ///   - pattern: The pattern.
    ///   - directory: The directory.
    ///   - source: Its path, with invalid UTF-8 replaced.
    ///   - state: The pattern's state after `source`.
    ///   - misnamed: The path above that is not UTF-8, which is refused once an entry below it is selected.
    /// - Throws: ``PackagingError`` for an entry that cannot be read.
    private mutating func addMatches(
        of pattern: GlobPattern,
        in directory: Directory,
        at source: String,
        state: GlobPattern.State,
        belowMisnamed misnamed: String?
    ) throws(PackagingError) {
        for entry in try entries(of: directory) {
            let name = entry.path.string
            let next = pattern.advance(state, over: name[...])
            let below = source.isEmpty ? name : Self.join(source, with: name)
            if next.isEmpty || isExcluded(below) { continue }
            if entry.kind == .directory {
                let inside = try open(entry.name, in: directory)
                let isUTF8 = String(validating: entry.name) != nil
                try addMatches(
                    of: pattern,
                    in: inside,
                    at: below,
                    state: next,
                    belowMisnamed: misnamed ?? (isUTF8 ? nil : below)
                )
            } else if pattern.accepts(next) {
                if let misnamed {
                    refuse(misnamed, because: Self.notUTF8)
                    continue
                }
                guard text(of: entry.name, in: source) != nil, let target = path(below, of: below)
                else { continue }
                let leaf = Leaf(name: entry.name, kind: entry.kind, source: below)
                try add(leaf, in: directory, as: target)
            }
        }
    }

    /// Returns the number of directories above the source of a selector if it is absolute or leaves the root; 0 for
    /// others.
    private static func componentsOutside(of selector: FileSelector) -> Int {
        switch selector {
        case .file(let source, _), .directory(let source, _):
            guard source.hasPrefix("/") || source.hasPrefix("..") else { return 0 }
            return max(0, source.pathComponents.count { $0 != "." } - 1)
        case .pattern, .exclusion:
            return 0
        }
    }

    private mutating func isExcluded(_ source: String) -> Bool {
        for index in exclusions.indices
        where exclusions[index].pattern.excludes(source, below: outside) {
            exclusions[index].isUsed = true
            return true
        }
        return false
    }
}

extension SelectorWalk {
    /// A file system entry that is not a directory.
    private struct Leaf {
        var name: FilePath.Component
        var kind: FileStatus.Kind
        var source: String
    }

    private mutating func add(directory destination: ContentPath, source: String) {
        found.append(
            RecipeEvaluation.Entry(
                content: ContentEntry(path: destination, kind: .directory),
                size: .zero,
                source: source,
                root: root
            )
        )
    }

    private mutating func add(
        _ leaf: Leaf,
        in directory: Directory,
        as destination: ContentPath
    ) throws(PackagingError) {
        let name = FilePath(leaf.name)
        var size = ByteCount.zero
        var mode: UInt32 = 0
        let claim: ContentEntry.Claim
        switch leaf.kind {
        case .file:
            let status = try PackagingError.wrapping { () throws(FileError) in
                try directory.file(reading: name)?.status()
            }
            guard let status else { throw .changed(source: leaf.source) }
            (size, mode, claim) = (ByteCount(status.size), status.mode, .file)
        case .link:
            let target = try PackagingError.wrapping { () throws(FileError) in
                try directory.linkBytes(leaf.name)
            }
            guard let text = String(validating: target ?? [], as: UTF8.self) else {
                let expected = "a link whose target is in UTF-8"
                refuse(leaf.source, because: ValueError(expected: expected, found: "other bytes"))
                return
            }
            claim = .symbolicLink(target: text)
        case .directory, .other:
            claim = .other(noun: "a device, a fifo or a socket")
        }
        do throws(ValueError) {
            // The path of a file is never the root.
            guard
                let content = try ContentEntry.validate(
                    name: destination.text,
                    claim: claim,
                    mode: mode
                )
            else { return }
            found.append(
                RecipeEvaluation.Entry(
                    content: content,
                    size: size,
                    source: leaf.source,
                    root: root
                )
            )
        } catch {
            refuse(leaf.source, because: error)
        }
    }

    /// Remembers a source that packs must not contain, so that all are reported together.
    private mutating func refuse(_ source: String, because fault: ValueError) {
        guard refusedPaths.insert(Array(source.utf8)).inserted else { return }
        refused.append(RefusedSource(source: source, fault: fault))
    }
}

extension SelectorWalk {
    private func open(_ source: String) throws(PackagingError) -> Directory {
        try PackagingError.wrapping { () throws(FileError) in
            try Directory.open(
                RecipeEvaluation.Entry.located(source.isEmpty ? "." : source, in: root)
            )
        }
    }

    /// Opens a directory that a selector names, or returns `nil` if it does not exist.
    private func openIfThere(_ source: String) throws(PackagingError) -> Directory? {
        do {
            return try open(source)
        } catch .file(let error) where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    private func open(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(PackagingError) -> Directory {
        let opened = try PackagingError.wrapping { () throws(FileError) in
            try directory.directory(FilePath(name))
        }
        guard let opened else { throw .changed(source: directory.path.appending(name).string) }
        return opened
    }

    private func entries(of directory: Directory) throws(PackagingError) -> [DirectoryEntry] {
        try PackagingError.wrapping { () throws(FileError) in try directory.entries() }
            .sorted { $0.path.string.utf8.lexicographicallyPrecedes($1.path.string.utf8) }
    }

    /// Returns the text of a name, or refuses the source.
    private mutating func text(of name: FilePath.Component, in source: String) -> String? {
        guard let text = String(validating: name) else {
            refuse(Self.join(source, with: name.string), because: Self.notUTF8)
            return nil
        }
        return text
    }

    private static let notUTF8 = ValueError(expected: "a name in UTF-8", found: "other bytes")

    /// Returns the path in the pack, or refuses the source.
    private mutating func path(_ text: String, of source: String) -> ContentPath? {
        do throws(ValueError) {
            return try ContentPath(text)
        } catch {
            refuse(source, because: error)
            return nil
        }
    }

    private static func join(_ source: String, with name: String) -> String {
        if source == "." || source.isEmpty { return name }
        return source.hasSuffix("/") ? source + name : "\(source)/\(name)"
    }
}
