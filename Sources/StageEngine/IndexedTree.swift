import StageContainer
import StageDigest
import StageIndex
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// The files of an indexed pack in a staging area, as frames and files of older generations arrive.
///
/// Any number of threads may use it, each with a cursor of its own; no two write the same bytes.
struct IndexedTree: Sendable {
    let index: ContentIndex
    let content: Directory
    /// Where the bytes of the frames go, frame by frame.
    private let places: [Place]
    /// Where in `places` those of a frame begin, and after the last one where they end.
    private let starts: [Int]

    /// Where part of a frame goes.
    private struct Place {
        var offset: Int64
        var entry: Int32
        var start: Int32
        var count: Int32
    }

    /// From this size on, a file begins to be written to disk as it grows: publishing waits for the disk,
    /// and has less to wait for then.
    private static let largeSize = Int64(256 << 10)

    init(_ verified: VerifiedIndex, content: Directory) {
        index = verified.content
        self.content = content
        var ends = [Int](repeating: 0, count: index.frames.count + 1)
        Self.forEachPlace(of: index) { frame, _ in ends[frame + 1] += 1 }
        for frame in index.frames.indices { ends[frame + 1] += ends[frame] }
        starts = ends
        let none = Place(offset: 0, entry: 0, start: 0, count: 0)
        var places = [Place](repeating: none, count: ends.last ?? 0)
        Self.forEachPlace(of: index) { frame, place in
            places[ends[frame]] = place
            ends[frame] += 1
        }
        self.places = places
    }

    private static func forEachPlace(of index: ContentIndex, _ take: (Int, Place) -> Void) {
        for (position, file) in index.files where file.size > 0 {
            switch file.content {
            case .part(let frame, let start):
                let place = Place(
                    offset: 0,
                    entry: Int32(position),
                    start: Int32(start),
                    count: Int32(file.size)
                )
                take(frame, place)
            case .frames(let list):
                var offset: Int64 = 0
                for frame in list {
                    let count = index.frames[frame].length
                    let place = Place(
                        offset: offset,
                        entry: Int32(position),
                        start: 0,
                        count: Int32(count)
                    )
                    take(frame, place)
                    offset += Int64(count)
                }
            }
        }
    }

    private func places(of frame: Int) -> ArraySlice<Place> {
        places[starts[frame]..<starts[frame + 1]]
    }

    /// Makes the directories, and the files without content.
    func prepare(_ cursor: inout DirectoryCursor) throws(FileError) {
        for directory in index.directories {
            let place = try cursor.existingPlace(of: directory.text)
            try place.directory.removeUnless(.directory, at: place.name)
            _ = try place.directory.makeDirectory(place.name, exactly: .directory)
        }
        for (position, file) in index.files where file.size == 0 {
            try makeFile(index.entries.path(at: position), file, &cursor)
        }
    }

    /// Makes the file at `position` if it has no bytes that would have made it.
    func makeEmptyFile(_ position: Int) throws(FileError) {
        var cursor = DirectoryCursor(content)
        if let file = index.entries.file(at: position), file.size == 0 {
            try makeFile(index.entries.path(at: position), file, &cursor)
        }
    }

    /// Makes the links, when everything that they could lead through is there.
    func makeLinks(_ cursor: inout DirectoryCursor) throws(FileError) {
        for position in index.entries.indices {
            guard case .link(let target) = index.entries.kind(at: position) else { continue }
            let place = try cursor.existingPlace(of: index.entries.path(at: position).text)
            do throws(FileError) {
                try place.directory.createLink(place.name, to: target.text)
            } catch  where error.errno == .fileExists {
                // An earlier run was here already. Not by a rename, whose temporary name would be content of
                // the pack after a crash.
                if let name = place.name.lastComponent { try place.directory.removeTree(name) }
                try place.directory.createLink(place.name, to: target.text)
            }
        }
    }

    /// Writes a frame wherever it belongs, except into the files of `done`; returns how many bytes.
    func write(
        _ frame: Int,
        _ bytes: [UInt8],
        except done: [Bool],
        _ cursor: inout DirectoryCursor
    ) throws(FileError) -> Int64 {
        var written: Int64 = 0
        for place in places(of: frame) where !done[Int(place.entry)] {
            let position = Int(place.entry)
            guard let file = index.entries.file(at: position) else { continue }
            let target = try makeFile(index.entries.path(at: position), file, &cursor)
            let start = Int(place.start)
            let part = bytes.span.extracting(start..<start + Int(place.count))
            try target.write(part, at: place.offset)
            written += Int64(place.count)
            let end = place.offset + Int64(place.count)
            let isDue = end == file.size || end >> 20 != place.offset >> 20
            if isDue && file.size >= Self.largeSize { target.startWriting() }
        }
        return written
    }

    /// The frames that the files that are not `done` need.
    func frames(except done: [Bool]) -> [Int] {
        index.frames.indices.filter { frame in
            places(of: frame).contains { !done[Int($0.entry)] }
        }
    }

    /// Opens the file of an entry for writing, after making it where it is not there.
    @discardableResult
    private func makeFile(
        _ path: ContentPath,
        _ file: ContentIndex.File,
        _ cursor: inout DirectoryCursor
    ) throws(FileError) -> File {
        let (directory, name) = try cursor.existingPlace(of: path.text)
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
    /// What of the files is here.
    struct Inventory {
        /// Which entries are complete, by position.
        var done: [Bool]
        /// Which frames are not needed any more, since they are in all the files that they belong to.
        var frames: Set<Int> = []
    }

    /// The inventory of an area in which nothing was but what ``prepare(_:)`` made.
    func freshInventory() -> Inventory {
        var inventory = Inventory(done: [Bool](repeating: false, count: index.entries.count))
        for (position, file) in index.files where file.size == 0 {
            inventory.done[position] = true
        }
        return inventory
    }

    /// Finds out what an earlier run has left of the files that are not `done`, reading all of it from
    /// the disk: the file system is synchronized before.
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
            let (directory, name) = try cursor.existingPlace(of: path.text)
            try directory.removeUnless(.file, at: name)
            guard let source = try directory.file(reading: name) else { continue }
            let status = try source.status()
            // A run can die between making a file and setting its mode.
            if status.linkCount == 1 { try source.ensureMode(file.mode) }
            source.dropCache()
            let isSettled = status.linkCount == 1 || status.mode == UInt32(file.mode.rawValue)
            if isSettled, status.size == file.size,
                try Digest(of: source, using: &buffer) == file.digest
            {
                inventory.done[position] = true
            } else if status.linkCount > 1 || status.size > file.size {
                // Never written into: it is a file of another generation as well.
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
            let needed = places(of: frame).count { !inventory.done[Int($0.entry)] }
            if found >= needed { inventory.frames.insert(frame) }
        }
        return inventory
    }

    /// Takes the file at `position` over from an older generation, where `path` is said to have its
    /// content; returns whether it has.
    ///
    /// What an earlier run began of it is replaced as a whole.
    func take(
        _ position: Int,
        from path: String,
        _ generation: inout DirectoryCursor,
        _ cursor: inout DirectoryCursor,
        using buffer: inout [UInt8]
    ) throws(FileError) -> Bool {
        guard let file = index.entries.file(at: position),
            let old = try generation.place(of: path),
            let source = try old.directory.file(reading: old.name),
            case let status = try source.status(), status.size == file.size,
            try Digest(of: source, size: file.size, using: &buffer) == file.digest
        else { return false }
        let (directory, name) = try cursor.existingPlace(of: index.entries.path(at: position).text)
        if status.mode == UInt32(file.mode.rawValue) {
            do throws(FileError) {
                try directory.createHardLink(name, to: old.name, in: old.directory)
                return true
            } catch  where error.isOutOfSpace {
                throw error
            } catch  where error.errno == .fileExists {
                try directory.removeFile(name)
                return try take(position, from: path, &generation, &cursor, using: &buffer)
            } catch {
                // A file system that has no links, or enough of them: a copy does as well.
            }
        }
        let copy = try directory.file(updating: name, permissions: file.mode)
        try copy.setMode(file.mode)
        try copy.copyContent(of: source)
        return true
    }
}

extension Directory {
    /// Removes what an earlier run cannot have made at `name`: anything of another kind.
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

    /// All directories, those above others first.
    var directories: [ContentPath] {
        // By their bytes: two names that Unicode takes for one are two for the file system.
        var found: [[UInt8]: ContentPath] = [:]
        var last: ArraySlice<UInt8>?
        for position in entries.indices {
            let bytes = entries.pathBytes(at: position)
            let slash = bytes.lastIndex(of: UInt8(ascii: "/"))
            let isDirectory = entries.isDirectory(at: position)
            let holder = isDirectory ? bytes : bytes[..<(slash ?? bytes.startIndex)]
            // What lies beside the entry before has the same directories above it.
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
