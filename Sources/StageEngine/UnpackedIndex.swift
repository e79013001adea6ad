import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension ContentIndex {
    /// Reads an unpacked archive, and returns an index of its files without frames and bundles.
    ///
    /// Its file table is the one from which the publisher made the delta of the index. Reads each file once.
    ///
    /// - Parameters:
    ///   - directory: The directory that the archive was unpacked to.
    ///   - isStopped: Called before each entry; `true` stops.
    /// - Returns: The index; `nil` if stopped early, or if the directory contains an entry that no pack may have.
    /// - Throws: ``FileError`` if a file cannot be read.
    static func withoutFrames(
        of directory: Directory,
        unless isStopped: () -> Bool
    ) throws(FileError) -> ContentIndex? {
        var survey = UnpackedSurvey()
        return try survey.add(directory, at: "", unless: isStopped)
            ? ContentIndex(entries: survey.entries) : nil
    }
}

/// The entries found below a directory, ordered by the bytes of their paths.
private struct UnpackedSurvey {
    private(set) var entries = ContentIndex.EntryList()
    private var buffer = [UInt8](repeating: 0, count: 1 << 20)

    /// Adds the entries below a directory; returns `false` if stopped early, or for an invalid entry.
    mutating func add(
        _ directory: Directory,
        at prefix: String,
        unless isStopped: () -> Bool
    ) throws(FileError) -> Bool {
        for child in try Self.children(of: directory) {
            guard !isStopped(), let path = try? ContentPath(prefix + child.name.string) else {
                return false
            }
            if child.hasEntries {
                guard let below = try directory.directory(FilePath(child.name)),
                    try add(below, at: path.text + "/", unless: isStopped)
                else { return false }
                continue
            }
            guard let kind = try kind(of: child, in: directory, at: path) else { return false }
            entries.append(ContentIndex.Entry(path: path, kind: kind))
        }
        return true
    }

    /// An entry of a directory.
    private struct Child {
        var name: FilePath.Component
        var kind: FileStatus.Kind
        /// `true` for a directory that is not empty: its entries are listed instead.
        var hasEntries = false
        /// The start of all paths that the entry stands for, by which they are ordered.
        var start: [UInt8]
    }

    private static func children(of directory: Directory) throws(FileError) -> [Child] {
        var children: [Child] = []
        for entry in try directory.entries() {
            var child = Child(
                name: entry.name,
                kind: entry.kind,
                start: Array(entry.path.string.utf8)
            )
            if entry.kind == .directory, let below = try directory.directory(entry.path) {
                try below.forEachEntry { _ in
                    child.hasEntries = true
                    return false
                }
                if child.hasEntries { child.start.append(UInt8(ascii: "/")) }
            }
            children.append(child)
        }
        return children.sorted { $0.start.lexicographicallyPrecedes($1.start) }
    }

    /// Returns the kind of an entry that is not a directory with entries; `nil` for one that no pack may have.
    private mutating func kind(
        of child: Child,
        in directory: Directory,
        at path: ContentPath
    ) throws(FileError) -> ContentIndex.Kind? {
        switch child.kind {
        case .directory:
            return .directory
        case .link:
            guard let text = try directory.link(child.name),
                let target = try? LinkTarget(text, of: path)
            else { return nil }
            return .link(to: target)
        case .file:
            guard let file = try directory.file(reading: FilePath(child.name)) else { return nil }
            let status = try file.status()
            let digest = try Digest(of: file, size: status.size, using: &buffer)
            return .file(
                ContentIndex.File(
                    isExecutable: status.mode & 0o100 != 0,
                    size: status.size,
                    digest: digest,
                    content: .frames([])
                )
            )
        case .other:
            return nil
        }
    }
}
