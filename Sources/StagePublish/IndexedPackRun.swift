import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// One run of an ``IndexedPackWriter``: entries in their order, and what became of them.
struct IndexedPackRun: ~Copyable {
    private let writer: IndexedPackWriter
    private var packer: FramePacker
    private var entries: [Entry] = []
    /// Small files that are gathered: the new ones, and those whose frames are given up.
    private var clusters = [Cluster(), Cluster()]
    /// What files with a content are made of: of the previous version, and of this one.
    private let known: [Digest: ContentIndex.File]
    private var contents: [Digest: Int] = [:]
    private var done: Int64 = 0
    /// The bytes of a file that are read at once: made once, since clearing a mebibyte costs more than reading a small file.
    private var buffer = [UInt8](repeating: 0, count: 1 << 20)
    /// The digests of small files, by their sources, where they are known before their turn.
    private var digests: [FilePath: Digest] = [:]
    /// Frames of the previous version that are given up.
    private var sparse: Set<Int> = []

    /// Small files that share a frame, and their bytes.
    private struct Cluster {
        var members: [(entry: Int, offset: Int)] = []
        var bytes: [UInt8] = []

        /// The place among the clusters of what no version had so far, and of what is gathered again.
        static let (new, moved) = (0, 1)
    }

    /// An entry whose frames are known by their slots.
    private struct Entry {
        var path: ContentPath
        var kind: Kind
    }

    private enum Kind {
        case directory
        case link(LinkTarget)
        case file(isExecutable: Bool, size: Int64, digest: Digest, Content)
    }

    private enum Content {
        case nothing
        case part(FramePacker.Slot, offset: Int)
        case frames([FramePacker.Slot])
        /// What another entry has.
        case same(entry: Int)
    }

    init(writer: IndexedPackWriter, packer: consuming FramePacker) {
        self.writer = writer
        self.packer = packer
        var known: [Digest: ContentIndex.File] = [:]
        let previous = writer.previous.entries
        for position in previous.indices {
            guard let file = previous.file(at: position), file.size > 0 else { continue }
            known[file.digest] = file
        }
        self.known = known
    }

    /// Finds the frames of the previous version of which less than half is left.
    ///
    /// Files in them are gathered again, apart from what is new, so that a first installation does not
    /// fetch the rest for ever. Who has the previous version has these files, and fetches none of that.
    mutating func survey(_ entries: [RecipeEvaluation.Entry]) throws(PackagingError) {
        guard !known.isEmpty else { return }
        var left: [Int: Int64] = [:]
        var seen: Set<Digest> = []
        for entry in entries {
            let size = entry.size.rawValue
            guard case .file = entry.content.kind, 1..<IndexedPackWriter.smallSize ~= size
            else { continue }
            if Task.isCancelled { throw .cancelled }
            let digest: Digest
            do throws(FileError) {
                let file = try File.open(readingRegular: entry.file)
                digest = try Digest(of: file, using: &buffer)
            } catch {
                throw .file(error)
            }
            guard let old = known[digest], old.size == size else { continue }
            digests[entry.file] = digest
            if case .part(let frame, _) = old.content, seen.insert(digest).inserted {
                left[frame, default: 0] += size
            }
        }
        for (frame, size) in left
        where size * 2 < Int64(writer.previous.frames[frame].length) {
            sparse.insert(frame)
        }
    }

    mutating func add(_ entry: RecipeEvaluation.Entry) async throws(PackagingError) {
        let path = entry.content.path
        switch entry.content.kind {
        case .directory:
            entries.append(Entry(path: path, kind: .directory))
        case .link(let target):
            entries.append(Entry(path: path, kind: .link(target)))
        case .copy:
            preconditionFailure("a recipe selects no copies")
        case .file(let isExecutable):
            let size = entry.size.rawValue
            let (digest, content): (Digest, Content?)
            do throws(FileError) {
                if let surveyed = digests[entry.file], let here = use(surveyed) {
                    (digest, content) = (surveyed, here)
                } else {
                    let file = try File.open(readingRegular: entry.file)
                    (digest, content) = try await add(file, size)
                }
            } catch {
                throw .file(error)
            }
            guard let content else { throw .changed(source: entry.source) }
            let file = Kind.file(
                isExecutable: isExecutable,
                size: size,
                digest: digest,
                content
            )
            entries.append(Entry(path: path, kind: file))
            if contents[digest] == nil { contents[digest] = entries.count - 1 }
            done += size
            writer.report(ByteCount(done))
        }
    }

    /// Adds the content of a file; it is `nil` for a file that has another size.
    private mutating func add(
        _ file: borrowing File,
        _ size: Int64
    ) async throws(FileError) -> (Digest, Content?) {
        var small: [UInt8] = []
        var hasher = SHA256Hasher()
        var length: Int64 = 0
        while case let count = try file.read(into: &buffer, at: length), count > 0 {
            hasher.update(buffer.span.extracting(0..<count))
            length += Int64(count)
            if size < IndexedPackWriter.smallSize { small += buffer[..<count] }
            guard length <= size else { break }
        }
        let digest = hasher.finish()
        guard length == size else { return (digest, nil) }
        if size == 0 { return (digest, .nothing) }
        if let content = use(digest) { return (digest, content) }
        if size < IndexedPackWriter.smallSize {
            let cluster = known[digest] == nil ? Cluster.new : Cluster.moved
            return (digest, try await gather(small, into: cluster))
        }
        return (digest, try await chunk(file, size))
    }

    /// What a content is made of that is in this version already, or was in the previous one.
    private mutating func use(_ digest: Digest) -> Content? {
        if let entry = contents[digest] { return .same(entry: entry) }
        switch known[digest]?.content {
        case .part(let frame, let offset) where !sparse.contains(frame):
            return .part(packer.add(previous: frame), offset: offset)
        case .frames(let list):
            return .frames(list.map { packer.add(previous: $0) })
        default:
            return nil
        }
    }

    /// Adds a small file to those that share a frame.
    private mutating func gather(
        _ bytes: [UInt8],
        into cluster: Int
    ) async throws(FileError) -> Content {
        if clusters[cluster].bytes.count + bytes.count > IndexedPackWriter.clusterSize {
            try await close(cluster)
        }
        clusters[cluster].members.append((entries.count, clusters[cluster].bytes.count))
        clusters[cluster].bytes += bytes
        // The frame is known when it is full.
        return .nothing
    }

    private mutating func close(_ cluster: Int) async throws(FileError) {
        let gathered = clusters[cluster]
        guard !gathered.members.isEmpty else { return }
        clusters[cluster] = Cluster()
        let length = gathered.bytes.count
        let slot = try await packer.add(gathered.bytes)
        for (position, offset) in gathered.members {
            guard case .file(let isExecutable, let size, let digest, _) = entries[position].kind
            else { continue }
            let content: Content =
                size == length ? .frames([slot]) : .part(slot, offset: offset)
            entries[position].kind = .file(
                isExecutable: isExecutable,
                size: size,
                digest: digest,
                content
            )
        }
    }

    /// Cuts a large file into frames.
    private mutating func chunk(
        _ file: borrowing File,
        _ size: Int64
    ) async throws(FileError) -> Content? {
        var slots: [FramePacker.Slot] = []
        var window: [UInt8] = []
        var offset: Int64 = 0
        var start = 0
        while true {
            if window.count - start < ContentChunker.maximum, offset < size {
                window.removeFirst(start)
                start = 0
                var buffer = [UInt8](repeating: 0, count: 4 << 20)
                let count = try file.read(into: &buffer, at: offset)
                guard count > 0 else { return nil }
                window += buffer[..<count]
                offset += Int64(count)
            }
            guard start < window.count else { break }
            let rest = window.span.extracting(start..<window.count)
            let length = ContentChunker.firstChunk(of: rest)
            slots.append(try await packer.add(Array(window[start..<start + length])))
            start += length
        }
        return .frames(slots)
    }

    /// Makes a version of what was added.
    consuming func finish() async throws(FileError) -> DraftVersion {
        for cluster in clusters.indices { try await close(cluster) }
        let entries = entries
        let previous = writer.previous
        let packed = try await packer.finish()
        let positions = packed.positions
        var index = ContentIndex(
            bundles: previous.bundles + packed.drafts.bundles,
            frames: packed.frames
        )
        func resolve(_ content: Content) -> ContentIndex.Content {
            switch content {
            case .nothing: return .part(frame: 0, offset: 0)
            case .part(let slot, let offset):
                return .part(frame: positions[slot], offset: offset)
            case .frames(let slots): return .frames(slots.map { positions[$0] })
            case .same(let entry):
                guard case .file(_, _, _, let original) = entries[entry].kind else {
                    preconditionFailure("only files have content")
                }
                return resolve(original)
            }
        }
        let parents = Set(entries.compactMap(\.path.parent).map { Array($0.text.utf8) })
        for entry in entries {
            // A directory with something in it is told by that.
            if case .directory = entry.kind, parents.contains(Array(entry.path.text.utf8)) {
                continue
            }
            let kind: ContentIndex.Kind =
                switch entry.kind {
                case .directory: .directory
                case .link(let target): .link(to: target)
                case .file(let isExecutable, let size, let digest, let parts):
                    .file(
                        ContentIndex.File(
                            isExecutable: isExecutable,
                            size: size,
                            digest: digest,
                            content: resolve(parts)
                        )
                    )
                }
            index.entries.append(ContentIndex.Entry(path: entry.path, kind: kind))
        }
        index.dropUnusedBundles()
        return DraftVersion(index: index, drafts: packed.drafts, newBytes: packed.newBytes)
    }
}
