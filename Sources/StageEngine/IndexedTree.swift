import StageContainer
import StageDigest
import StageIndex
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// The files of an indexed pack in a staging area, while frames and files of older generations arrive.
///
/// Threads may use it concurrently, each with its own cursor; no two write the same bytes.
struct IndexedTree: Sendable {
    let index: ContentIndex
    /// The number of directories of the index.
    let directoryCount: Int
    let content: Directory
    /// The destinations of the bytes of all frames, grouped by frame.
    private let destinations: [Destination]
    /// The start of each frame's group in `destinations`, followed by the end of the last group.
    private let starts: [Int]

    /// The destination of a part of a frame.
    private struct Destination {
        var offset: Int64
        var entry: Int32
        var start: Int32
        var count: Int32
    }

    /// The size from which files are written back to disk as they grow, so that the sync before publishing takes
    /// less time.
    private static let largeSize = Int64(256 << 10)

    init(_ verified: VerifiedIndex, content: Directory) {
        index = verified.content
        directoryCount = verified.directoryCount
        self.content = content
        var ends = [Int](repeating: 0, count: index.frames.count + 1)
        Self.forEachDestination(of: index) { frame, _ in ends[frame + 1] += 1 }
        for frame in index.frames.indices { ends[frame + 1] += ends[frame] }
        starts = ends
        let none = Destination(offset: 0, entry: 0, start: 0, count: 0)
        var destinations = [Destination](repeating: none, count: ends.last ?? 0)
        Self.forEachDestination(of: index) { frame, destination in
            destinations[ends[frame]] = destination
            ends[frame] += 1
        }
        self.destinations = destinations
    }

    private static func forEachDestination(
        of index: ContentIndex,
        _ take: (Int, Destination) -> Void
    ) {
        for (position, file) in index.files where file.size > 0 {
            switch file.content {
            case .part(let frame, let start):
                let destination = Destination(
                    offset: 0,
                    entry: Int32(position),
                    start: Int32(start),
                    count: Int32(file.size)
                )
                take(frame, destination)
            case .frames(let list):
                var offset: Int64 = 0
                for frame in list {
                    let count = index.frames[frame].length
                    let destination = Destination(
                        offset: offset,
                        entry: Int32(position),
                        start: 0,
                        count: Int32(count)
                    )
                    take(frame, destination)
                    offset += Int64(count)
                }
            }
        }
    }

    private func destinations(of frame: Int) -> ArraySlice<Destination> {
        destinations[starts[frame]..<starts[frame + 1]]
    }

    /// Creates the directories and the empty files.
    func prepare(_ cursor: inout DirectoryCursor) throws(FileError) {
        for directory in index.directories {
            let location = try cursor.existingLocation(of: directory.text)
            try location.directory.removeUnless(.directory, at: location.name)
            _ = try location.directory.makeDirectory(location.name, exactly: .directory)
        }
        for (position, file) in index.files where file.size == 0 {
            try makeFile(at: index.entries.path(at: position), for: file, using: &cursor)
        }
    }

    /// Creates the file at `position` if it is empty: no frame creates such a file.
    func makeEmptyFile(_ position: Int) throws(FileError) {
        var cursor = DirectoryCursor(content)
        if let file = index.entries.file(at: position), file.size == 0 {
            try makeFile(at: index.entries.path(at: position), for: file, using: &cursor)
        }
    }

    /// Creates the links.
    ///
    /// Called after the files and directories exist that links could lead through.
    func makeLinks(_ cursor: inout DirectoryCursor) throws(FileError) {
        for position in index.entries.indices {
            guard case .link(let target) = index.entries.kind(at: position) else { continue }
            let location = try cursor.existingLocation(of: index.entries.path(at: position).text)
            do throws(FileError) {
                try location.directory.createLink(location.name, to: target.text)
            } catch  where error.errno == .fileExists {
                // An earlier run made this link. Replacing it by a rename could leave a temporary name in the
                // pack after a crash.
                if let name = location.name.lastComponent {
                    try location.directory.removeTree(name)
                }
                try location.directory.createLink(location.name, to: target.text)
            }
        }
    }

    /// Writes a frame to all its destinations except the files in `done`, and returns the number of bytes
    /// written.
    func writeFrame(
        _ frame: Int,
        content bytes: [UInt8],
        except done: [Bool],
        using cursor: inout DirectoryCursor
    ) throws(FileError) -> Int64 {
        var written: Int64 = 0
        for destination in destinations(of: frame) where !done[Int(destination.entry)] {
            let position = Int(destination.entry)
            guard let file = index.entries.file(at: position) else { continue }
            let target = try makeFile(
                at: index.entries.path(at: position),
                for: file,
                using: &cursor
            )
            let start = Int(destination.start)
            let part = bytes.span.extracting(start..<start + Int(destination.count))
            try target.write(part, at: destination.offset)
            written += Int64(destination.count)
            let end = destination.offset + Int64(destination.count)
            let isDue = end == file.size || end >> 20 != destination.offset >> 20
            if isDue && file.size >= Self.largeSize { target.startWriting() }
        }
        return written
    }

    /// Writes the whole content of the file at `position`.
    func writeFile(
        _ position: Int,
        content bytes: [UInt8],
        using cursor: inout DirectoryCursor
    ) throws(FileError) {
        guard let file = index.entries.file(at: position) else { return }
        let target = try makeFile(at: index.entries.path(at: position), for: file, using: &cursor)
        try target.write(bytes.span, at: 0)
    }

    /// Returns the frames that are needed for files that are not `done`.
    func frames(except done: [Bool]) -> [Int] {
        index.frames.indices.filter { frame in
            destinations(of: frame).contains { !done[Int($0.entry)] }
        }
    }

    /// Opens the file of an entry for writing; creates it if necessary.
    @discardableResult
    private func makeFile(
        at path: ContentPath,
        for file: ContentIndex.File,
        using cursor: inout DirectoryCursor
    ) throws(FileError) -> File {
        let (directory, name) = try cursor.existingLocation(of: path.text)
        if case .frames(let list) = file.content, list.count > 1,
            let open = try directory.file(updatingExisting: name)
        {
            return open
        }
        let made = try directory.file(updating: name, permissions: file.mode)
        try made.setMode(file.mode)
        return made
    }
}

extension IndexedTree {
    /// The files and frames that are in the staging area.
    struct Inventory {
        /// The complete entries, by position.
        var done: [Bool]
        /// The frames that are not needed, since every incomplete file that contains them holds them.
        var frames: Set<Int> = []
    }

    /// Returns the inventory of an area that contains only the output of ``prepare(_:)``.
    func freshInventory() -> Inventory {
        var inventory = Inventory(done: [Bool](repeating: false, count: index.entries.count))
        for (position, file) in index.files where file.size == 0 {
            inventory.done[position] = true
        }
        return inventory
    }

    /// Finds what an earlier run left of the files that are not `done`.
    ///
    /// Reads all of it from the disk. The caller has synced the file system.
    func inventory(
        except done: [Bool]? = nil,
        _ cursor: inout DirectoryCursor
    ) throws(FileError) -> Inventory {
        var inventory = done.map { Inventory(done: $0) } ?? freshInventory()
        var buffer = [UInt8](repeating: 0, count: IndexLimits.frameLength)
        var found: [Int: Int] = [:]
        for (position, file) in index.files
        where file.size > 0 && !inventory.done[position] {
            let path = index.entries.path(at: position)
            let (directory, name) = try cursor.existingLocation(of: path.text)
            try directory.removeUnless(.file, at: name)
            guard let source = try directory.file(reading: name) else { continue }
            let status = try source.status()
            // A run can die between creating a file and setting its mode.
            if status.linkCount == 1 { try source.ensureMode(file.mode) }
            source.dropCache()
            let isSettled = status.linkCount == 1 || status.mode == UInt32(file.mode.rawValue)
            if isSettled, status.size == file.size,
                try Digest(of: source, using: &buffer) == file.digest
            {
                inventory.done[position] = true
            } else if status.linkCount > 1 || status.size > file.size {
                // A file with several links belongs to another generation too, and must not be written to.
                try directory.removeFile(name)
            } else if case .frames(let list) = file.content {
                var offset: Int64 = 0
                for frame in list {
                    let length = index.frames[frame].length
                    var bytes = [UInt8](repeating: 0, count: length)
                    let count = try source.read(into: &bytes, at: offset)
                    if count == length, Digest(of: bytes) == index.frames[frame].digest {
                        found[frame, default: 0] += 1
                    }
                    offset += Int64(length)
                }
            }
        }
        for (frame, found) in found {
            let needed = destinations(of: frame).count { !inventory.done[Int($0.entry)] }
            if found >= needed { inventory.frames.insert(frame) }
        }
        return inventory
    }

    /// Reuses a file of an older generation for the entry at `position`, by a hard link or a copy.
    ///
    /// Replaces a partial file of an earlier run.
    ///
    /// Returns `false` if the file at `path` does not have the content of the entry.
    func reuseFile(
        for position: Int,
        from path: String,
        of generation: inout DirectoryCursor,
        into cursor: inout DirectoryCursor,
        using buffer: inout [UInt8]
    ) throws(FileError) -> Bool {
        guard let file = index.entries.file(at: position),
            let old = try generation.location(of: path),
            let source = try old.directory.file(reading: old.name),
            case let status = try source.status(), status.size == file.size,
            try Digest(of: source, size: file.size, using: &buffer) == file.digest
        else { return false }
        let (directory, name) = try cursor.existingLocation(
            of: index.entries.path(at: position).text
        )
        if status.mode == UInt32(file.mode.rawValue) {
            do throws(FileError) {
                try directory.createHardLink(name, to: old.name, in: old.directory)
                return true
            } catch  where error.isOutOfSpace {
                throw error
            } catch  where error.errno == .fileExists {
                try directory.removeFile(name)
                return try reuseFile(
                    for: position,
                    from: path,
                    of: &generation,
                    into: &cursor,
                    using: &buffer
                )
            } catch {
                // Copies if the file system does not support hard links or has reached its limit.
            }
        }
        let copy = try directory.file(updating: name, permissions: file.mode)
        try copy.setMode(file.mode)
        try copy.copyContent(of: source)
        return true
    }
}

extension Directory {
    /// Removes the entry at `name` if it is not of `kind`, so not from an earlier run.
    fileprivate func removeUnless(
        _ kind: FileStatus.Kind,
        at name: FilePath
    ) throws(FileError) {
        guard let status = try status(name), status.kind != kind,
            let component = name.lastComponent
        else { return }
        try removeTree(component)
    }
}

extension ContentIndex.File {
    /// The permission bits of the file.
    var mode: FilePermissions { isExecutable ? .executable : .file }
}

extension ContentIndex {
    /// The files, and their positions among the entries.
    var files: some Sequence<(position: Int, file: File)> {
        entries.indices.lazy.compactMap { position in
            entries.file(at: position).map { (position, $0) }
        }
    }

    /// All directories, parents before children.
    var directories: [ContentPath] {
        // Compares bytes: names that are equal in Unicode are different names to the file system.
        var found: [[UInt8]: ContentPath] = [:]
        var last: ArraySlice<UInt8>?
        for position in entries.indices {
            let bytes = entries.pathBytes(at: position)
            let slash = bytes.lastIndex(of: UInt8(ascii: "/"))
            let isDirectory = entries.isDirectory(at: position)
            let holder = isDirectory ? bytes : bytes[..<(slash ?? bytes.startIndex)]
            // The entry has the same parent directories as the one before.
            if holder == last { continue }
            last = holder
            let path = entries.path(at: position)
            var above = isDirectory ? path : path.parent
            while let next = above {
                guard found.updateValue(next, forKey: Array(next.text.utf8)) == nil else { break }
                above = next.parent
            }
        }
        return found.values.sorted()
    }

    /// Writes the lines of a listing of the pack.
    func list(_ take: (String) throws(FileError) -> Void) throws(FileError) {
        try take("d\t755\t.")
        for directory in directories { try take("d\t755\t\(directory)") }
        for entry in entries {
            switch entry.kind {
            case .directory: break
            case .link(let target): try take("l\t\(target.text)\t\(entry.path)")
            case .file(let file):
                let mode = file.isExecutable ? "755" : "644"
                try take("f\t\(mode)\t\(file.size)\t\(file.digest)\t\(entry.path)")
            }
        }
    }
}
