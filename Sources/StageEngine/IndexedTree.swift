import StageContainer
import StageDigest
import StageIndex
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// The files of an indexed pack in a staging area, as frames and files of older generations arrive.
///
/// Any number of threads may use it; no two write the same bytes.
struct IndexedTree: Sendable {
    let index: ContentIndex
    let content: Directory
    /// For each frame, where its bytes go.
    private let places: [[Place]]

    /// Where part of a frame goes.
    private struct Place {
        var entry: Int
        var offset: Int64
        var start: Int
        var count: Int
    }

    init(index: ContentIndex, content: Directory) {
        self.index = index
        self.content = content
        var places = [[Place]](repeating: [], count: index.frames.count)
        for (position, file) in index.files where file.size > 0 {
            switch file.content {
            case .part(let frame, let start):
                let count = Int(file.size)
                places[frame].append(Place(entry: position, offset: 0, start: start, count: count))
            case .frames(let list):
                var offset: Int64 = 0
                for frame in list {
                    let count = index.frames[frame].length
                    places[frame].append(
                        Place(entry: position, offset: offset, start: 0, count: count)
                    )
                    offset += Int64(count)
                }
            }
        }
        self.places = places
    }

    /// Makes the directories, and the files without content.
    func prepare() throws(FileError) {
        for directory in index.directories {
            let path = FilePath(directory.text)
            if try content.createDirectory(path), let made = try content.directory(path) {
                try made.setMode(.directory)
            }
        }
        for (position, file) in index.files where file.size == 0 {
            _ = try open(position, file)
        }
    }

    /// Makes the file at `position` if it has no bytes that would have made it.
    func makeEmptyFile(_ position: Int) throws(FileError) {
        if case .file(let file) = index.entries[position].kind, file.size == 0 {
            _ = try open(position, file)
        }
    }

    /// Makes the links, when everything that they could lead through is there.
    func makeLinks() throws(FileError) {
        for entry in index.entries {
            guard case .link(let target) = entry.kind else { continue }
            let path = FilePath(entry.path.text)
            if let status = try content.status(path) {
                // An earlier run was here already: what it left was made of the same index.
                if status.kind == .link { continue }
            }
            try content.createLink(path, to: target.text)
        }
    }

    /// Writes a frame wherever it belongs, except into the files of `done`; returns how many bytes.
    func write(_ frame: Int, _ bytes: [UInt8], except done: [Bool]) throws(FileError) -> Int64 {
        var written: Int64 = 0
        for place in places[frame] where !done[place.entry] {
            guard case .file(let file) = index.entries[place.entry].kind else { continue }
            let target = try open(place.entry, file)
            let part = bytes.span.extracting(place.start..<place.start + place.count)
            try target.write(part, at: place.offset)
            written += Int64(place.count)
        }
        return written
    }

    /// The frames that the files that are not `done` need.
    func frames(except done: [Bool]) -> [Int] {
        places.indices.filter { places[$0].contains { !done[$0.entry] } }
    }

    private func open(_ position: Int, _ file: ContentIndex.File) throws(FileError) -> File {
        let path = FilePath(index.entries[position].path.text)
        let mode: FilePermissions = file.isExecutable ? .executable : .file
        if let open = try content.file(updatingExisting: path) { return open }
        let made = try content.file(updating: path, permissions: mode)
        try made.setMode(mode)
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

    /// Finds out what an earlier run has left, reading all of it.
    func inventory() throws(FileError) -> Inventory {
        var inventory = Inventory(done: [Bool](repeating: false, count: index.entries.count))
        var buffer = [UInt8](repeating: 0, count: IndexLimits.frameLength)
        var missing: [Int: Int] = [:]
        for (position, file) in index.files {
            let path = FilePath(index.entries[position].path.text)
            if file.size == 0 {
                inventory.done[position] = true
                continue
            }
            guard let found = try content.file(reading: path) else { continue }
            let status = try found.status()
            if status.size == file.size, try Digest(of: found, using: &buffer) == file.digest {
                inventory.done[position] = true
            } else if status.linkCount > 1 || status.size > file.size {
                // Never written into: it is a file of another generation as well.
                try content.removeFile(path)
            } else if case .frames(let list) = file.content {
                var offset: Int64 = 0
                for frame in list {
                    let length = index.frames[frame].length
                    var bytes = [UInt8](repeating: 0, count: length)
                    let count = try found.read(into: &bytes, at: offset)
                    if count == length, Digest(of: bytes) == index.frames[frame].digest {
                        missing[frame, default: 0] += 1
                    }
                    offset += Int64(length)
                }
            }
        }
        for (frame, found) in missing {
            let needed = places[frame].count { !inventory.done[$0.entry] }
            if found >= needed { inventory.frames.insert(frame) }
        }
        return inventory
    }

    /// Takes the file at `position` over from an older generation, whose listing names it; returns
    /// whether it is what it ought to be.
    func take(
        _ position: Int,
        from old: ContentListing.ListedFile,
        in generation: Directory,
        using buffer: inout [UInt8]
    ) throws(FileError) -> Bool {
        guard case .file(let file) = index.entries[position].kind, old.size == file.size,
            let source = try generation.file(reading: old.path),
            try Digest(of: source, using: &buffer) == file.digest
        else { return false }
        let path = FilePath(index.entries[position].path.text)
        let mode: FilePermissions = file.isExecutable ? .executable : .file
        if try source.status().mode == UInt32(mode.rawValue) {
            do throws(FileError) {
                try content.createHardLink(path, to: old.path, in: generation)
                return true
            } catch  where error.isOutOfSpace {
                throw error
            } catch {
                // A file system that has no links, or enough of them: a copy does as well.
            }
        }
        let copy = try content.file(updating: path, permissions: mode)
        try copy.setMode(mode)
        try copy.copyContent(of: source)
        return true
    }
}

extension ContentIndex {
    /// The files with their positions among the entries.
    var files: [(position: Int, file: File)] {
        entries.enumerated().compactMap { position, entry in
            if case .file(let file) = entry.kind { (position, file) } else { nil }
        }
    }

    /// All directories, those above others first.
    var directories: [ContentPath] {
        // By their bytes: two names that Unicode takes for one are two for the file system.
        var found: [[UInt8]: ContentPath] = [:]
        for entry in entries {
            var path = entry.kind == .directory ? entry.path : entry.path.parent
            while let next = path {
                guard found.updateValue(next, forKey: Array(next.text.utf8)) == nil else { break }
                path = next.parent
            }
        }
        return found.values.sorted()
    }

    /// Writes the lines of a listing of the pack.
    func list(_ take: (String) throws(FileError) -> Void) throws(FileError) {
        for directory in directories { try take("d\t\(directory)") }
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
