import StageArchive
public import StageContainer
import StageDigest
import StageIndex
public import StageModel
import StageSystem
import SystemPackage

/// The listing of a generation: its files with their digests, written when the pack is staged and compared
/// when it is verified.
///
/// A text file named `files` beside the content: one line per entry, in no particular order. Tabs separate the
/// fields; the name of a pack's file cannot contain one.
///
/// ```
/// f <mode, octal> <size> <SHA-256> <path>
/// d <mode, octal> <path>
/// l <target> <path>
/// ```
public enum ContentListing {
    static let name = ContainerLayout.listing

    /// A difference between content and its listing.
    @nonexhaustive
    public enum Difference: Hashable, Sendable {
        /// A file, directory or link of the listing does not exist.
        case missing(String)
        /// An entry exists that is not in the listing.
        case added(String)
        /// An entry differs from the listing in content or kind.
        case changed(String)
        /// A file or directory differs from the listing in its permission bits alone.
        case mode(String, found: UInt32, expected: UInt32)

        /// The path, relative to the pack.
        public var path: String {
            switch self {
            case .missing(let path), .added(let path), .changed(let path), .mode(let path, _, _):
                path
            }
        }
    }

    /// Source of the digests for a listing.
    enum DigestSource: Equatable, Sendable {
        /// The files: each of them is read once.
        case files
        /// The index that the content was verified against, with the number of its directories.
        case index(ContentIndex, directories: Int)
    }

    /// Writes the listing of the content of a staging area.
    ///
    /// - Parameters:
    ///   - area: The staging area.
    ///   - digests: The source of the digests.
    /// - Returns: The figures of the content: of the files and links on disk for both sources, and the number of listed
    ///   directories.
    /// - Throws: ``StageError/content(_:)`` for an entry that packs must not contain, if the files are the source;
    ///   ``StageError/container(_:)`` if the content cannot be read or the listing cannot be written.
    static func write(
        for area: StagingArea,
        digests: DigestSource
    ) throws(StageError) -> ContentFigures {
        var check = UnpackedEntryCheck()
        let figures = try StageError.wrapping { () throws(FileError) in
            try write(for: area, digests: digests, with: &check)
        }
        try StageError.wrapping { () throws(ArchiveError) in try check.finish() }
        return figures
    }

    private static func write(
        for area: StagingArea,
        digests: DigestSource,
        with check: inout UnpackedEntryCheck
    ) throws(FileError) -> ContentFigures {
        let file = try area.directory.file(updating: FilePath(name))
        try file.truncate(to: 0)
        var writer = ListingWriter(file: file)
        var figures = ContentFigures(fileCount: 0, size: .zero)
        var directoryCount = 0
        switch digests {
        case .files:
            var buffer = makeBuffer()
            try forEachLine(in: area.content, at: ".", using: &buffer, with: &check) {
                line,
                size throws(FileError) in
                if let size { figures.add(size) } else { directoryCount += 1 }
                try writer.append(line)
            }
            // The first line is that of the pack itself.
            directoryCount -= 1
        case .index(let index, let directories):
            directoryCount = directories
            try index.list { line throws(FileError) in try writer.append(line) }
            try figures.add(area.content)
        }
        try writer.flush()
        figures.directoryCount = directoryCount
        return figures
    }

    /// Calls `take` with the path and the digest of each file in the listing of a generation.
    static func forEachFile(
        in generation: Directory,
        _ take: (_ path: ArraySlice<UInt8>, _ digest: Digest) -> Void
    ) throws(FileError) {
        guard let bytes = try bytes(in: generation) else { return }
        var rest = bytes[...]
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            let fields = rest[..<end].split(
                separator: UInt8(ascii: "\t"),
                omittingEmptySubsequences: false
            )
            rest = rest[(end + 1)...]
            // Ignores lines of directories and links, and malformed lines.
            guard fields.count == 5, fields[0].elementsEqual("f".utf8),
                let digest = try? Digest(hexadecimal: String(decoding: fields[3], as: UTF8.self))
            else { continue }
            take(fields[4], digest)
        }
    }

    /// Compares the content of a generation with its listing, reading every file once.
    ///
    /// The entries of the listing are held in a set, so memory grows with the number of files, at some 200
    /// bytes each.
    static func differences(in generation: Directory) throws(FileError) -> [Difference] {
        guard try generation.status(FilePath(ContainerLayout.content))?.kind == .directory,
            let content = try generation.directory(FilePath(ContainerLayout.content))
        else { return [.missing(".")] }
        guard let listing = try bytes(in: generation) else {
            return [.missing("the listing '\(name)'")]
        }
        // Compares bytes: names that are equal in Unicode are different names to the file system.
        var expected = Set(listing.split(separator: UInt8(ascii: "\n")))
        var unexpected: [ArraySlice<UInt8>] = []
        var buffer = makeBuffer()
        var check = UnpackedEntryCheck.none
        try forEachLine(in: content, at: ".", using: &buffer, with: &check) {
            line,
            _ throws(FileError) in
            let bytes = Array(line.utf8)[...]
            if expected.remove(bytes) == nil { unexpected.append(bytes) }
        }
        let missing = linesByPath(expected)
        let added = linesByPath(unexpected)
        var differences = missing.keys.filter { added[$0] == nil }.sorted()
            .map(Difference.missing)
        for (path, line) in missing.sorted(by: { $0.key < $1.key }) {
            guard let found = added[path] else { continue }
            differences.append(difference(at: path, found: found, expected: line))
        }
        return differences
            + added.keys.filter { missing[$0] == nil }.sorted().map(Difference.added)
    }

    /// Returns the difference of an entry from its line in the listing.
    private static func difference(
        at path: String,
        found: ArraySlice<UInt8>,
        expected: ArraySlice<UInt8>
    ) -> Difference {
        let (found, expected) = (fields(ofLine: found), fields(ofLine: expected))
        // Lines of files and directories have the mode in their second field, and all that follows is equal.
        guard found.count > 2, found[0] == expected[0], !found[0].elementsEqual("l".utf8),
            found.dropFirst(2).elementsEqual(expected.dropFirst(2)),
            let mode = UInt32(String(decoding: found[1], as: UTF8.self), radix: 8),
            let expectedMode = UInt32(String(decoding: expected[1], as: UTF8.self), radix: 8)
        else { return .changed(path) }
        return .mode(path, found: mode, expected: expectedMode)
    }

    /// Returns whether the content of a generation equals its listing, reading every file once.
    static func isIntact(_ generation: Directory) -> Bool {
        // Content that cannot be read is not intact.
        (try? differences(in: generation))?.isEmpty ?? false
    }

    /// Reads the listing of a generation; `nil` if it does not exist, is not a regular file or is larger than
    /// 1 GiB.
    private static func bytes(in generation: Directory) throws(FileError) -> [UInt8]? {
        do throws(FileError) {
            return try generation.bytes(of: FilePath(name), limit: 1 << 30)
        } catch {
            guard error.isWrongKindOrSize else { throw error }
            return nil
        }
    }

    /// Returns a buffer for small files, which are the most frequent; ``grow(_:for:)`` enlarges it for others.
    private static func makeBuffer() -> [UInt8] { [UInt8](repeating: 0, count: 16 << 10) }

    /// Enlarges the buffer to 256 KiB if the next file does not fit.
    private static func grow(_ buffer: inout [UInt8], for size: Int64) {
        let wanted = min(size, 256 << 10)
        if wanted > buffer.count { buffer = [UInt8](repeating: 0, count: 256 << 10) }
    }

    private static func fields(ofLine line: ArraySlice<UInt8>) -> [ArraySlice<UInt8>] {
        line.split(separator: UInt8(ascii: "\t"), omittingEmptySubsequences: false)
    }

    private static func linesByPath(
        _ lines: some Sequence<ArraySlice<UInt8>>
    ) -> [String: ArraySlice<UInt8>] {
        let lines = lines.map { line in
            (String(decoding: fields(ofLine: line).last ?? [], as: UTF8.self), line)
        }
        return Dictionary(lines) { first, _ in first }
    }

    /// Calls `take` with the line of the directory and of every entry below it that `check` accepts.
    ///
    /// The size is `nil` for directories, which do not count as files of a pack.
    private static func forEachLine(
        in directory: Directory,
        at path: String,
        using buffer: inout [UInt8],
        with check: inout UnpackedEntryCheck,
        _ take: (String, ByteCount?) throws(FileError) -> Void
    ) throws(FileError) {
        try take("d\t\(String(try directory.status().mode, radix: 8))\t\(path)", nil)
        let prefix = path == "." ? "" : path + "/"
        for entry in try directory.entries() {
            let path = prefix + entry.path.string
            guard check.accepts(entry, at: path) else { continue }
            switch entry.kind {
            case .directory:
                if let below = try directory.directory(entry.path) {
                    try forEachLine(in: below, at: path, using: &buffer, with: &check, take)
                }
            case .link:
                let target = try directory.linkBytes(entry.name) ?? []
                check.addLink(path, to: target)
                try take("l\t\(String(decoding: target, as: UTF8.self))\t\(path)", .zero)
            case .file:
                guard let file = try directory.file(reading: entry.path) else { continue }
                let status = try file.status()
                check.add(mode: status.mode, of: path)
                grow(&buffer, for: status.size)
                let digest = try Digest(of: file, using: &buffer)
                let mode = String(status.mode, radix: 8)
                try take(
                    "f\t\(mode)\t\(status.size)\t\(digest)\t\(path)",
                    ByteCount(status.size)
                )
            case .other:
                try take("o\t\(path)", .zero)
            }
        }
    }
}

extension ContentFigures {
    /// Counts a file or link.
    fileprivate mutating func add(_ size: ByteCount) {
        fileCount += 1
        self.size = self.size + size
    }

    /// Counts the files and links below a directory, without reading their content.
    fileprivate mutating func add(_ directory: Directory) throws(FileError) {
        for entry in try directory.entries() {
            switch entry.kind {
            case .directory:
                if let below = try directory.directory(entry.path) { try add(below) }
            case .file:
                add(ByteCount(try directory.status(entry.path)?.size ?? 0))
            case .link, .other:
                add(.zero)
            }
        }
    }
}

/// Collects lines and writes them in blocks of 64 KiB.
private struct ListingWriter: ~Copyable {
    let file: File
    private var block: [UInt8] = []
    private var offset: Int64 = 0

    init(file: consuming File) {
        self.file = file
    }

    mutating func append(_ line: String) throws(FileError) {
        block += line.utf8
        block.append(UInt8(ascii: "\n"))
        if block.count >= 64 << 10 { try flush() }
    }

    mutating func flush() throws(FileError) {
        try file.write(block.span, at: offset)
        offset += Int64(block.count)
        block.removeAll(keepingCapacity: true)
    }
}

extension Container {
    /// Compares the current generation of a pack with its listing, reading every file once.
    ///
    /// Returns `nil` if the pack is not staged, and an empty array if nothing differs.
    public func differences(in id: PackID) throws(ContainerError) -> [ContentListing.Difference]? {
        guard let lease = try reader.lease(id, marksUse: false) else {
            guard try reader.currentGeneration(of: id) != nil else { return nil }
            return [.missing("the generation, or its file 'lease'")]
        }
        let beside = try reader.faults(beside: lease).map { fault -> ContentListing.Difference in
            let subject = "'\(fault.name.lastComponent?.string ?? "")' of the generation"
            guard case .hasMode(let found, let expected) = fault.problem else {
                return .changed("\(subject): \(fault)")
            }
            return .mode(subject, found: found, expected: expected)
        }
        do throws(FileError) {
            let generation = try Directory.open(lease.content.removingLastComponent())
            return try ContentListing.differences(in: generation) + beside
        } catch {
            throw .file(error)
        }
    }
}
