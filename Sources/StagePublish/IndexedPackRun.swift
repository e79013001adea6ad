import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// A single run of an ``IndexedPackWriter``: entries in order, and their frames.
struct IndexedPackRun: ~Copyable {
    private let writer: IndexedPackWriter
    private var packer: FramePacker
    private var entries: [Entry] = []
    /// Collected small files: new ones, and those whose previous frames are abandoned.
    private var clusters = [Cluster(), Cluster()]
    /// The positions of the previous version's files, by digest.
    private let known: [Digest: Int]
    /// The positions of the first entries of this version with a content, by digest.
    private var contents: [Digest: Int] = [:]
    private var done: Int64 = 0
    /// A reusable read buffer: zeroing a mebibyte takes longer than reading a small file.
    private var buffer = [UInt8](repeating: 0, count: 1 << 20)
    /// Digests of small files that are known in advance, by position.
    private var digests: [Int: Digest] = [:]
    /// The positions of the previous version's bundles that the store has with other bytes.
    private let damaged: Set<Int>
    /// Abandoned frames of the previous version.
    private var abandonedFrames: Set<Int> = []

    /// Small files that share a frame, and their bytes.
    private struct Cluster {
        var members: [(entry: Int, offset: Int)] = []
        var bytes: [UInt8] = []

        /// The indexes of the clusters: content that no version has had, and content that is collected again.
        static let (new, moved) = (0, 1)
    }

    /// An entry whose frames are known by slot.
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
        /// The content is that of another entry.
        case same(entry: Int)
    }

    /// Starts a run over `count` entries, which uses no frames in the bundles `damaged` of the previous version.
    init(
        writer: IndexedPackWriter,
        packer: consuming FramePacker,
        damaged: Set<Int>,
        count: Int
    ) {
        self.writer = writer
        self.packer = packer
        self.damaged = damaged
        entries.reserveCapacity(count)
        contents.reserveCapacity(count)
        var known: [Digest: Int] = [:]
        let previous = writer.previous.entries
        for position in previous.indices {
            guard let file = previous.file(at: position), file.size > 0 else { continue }
            known[file.digest] = position
        }
        self.known = known
    }

    /// Finds frames of the previous version of which less than half is still used.
    ///
    /// Their remaining files are collected into new frames, separate from new files, so that first
    /// installations do not download the unused parts forever. Clients with the previous version have these
    /// files, and download nothing.
    mutating func findSparseFrames(in entries: [RecipeEvaluation.Entry]) throws(PackagingError) {
        guard !known.isEmpty else { return }
        var left: [Int: Int64] = [:]
        var seen: Set<Digest> = []
        for (position, entry) in entries.enumerated() {
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
            guard let old = previousFile(with: digest), old.size == size else { continue }
            digests[position] = digest
            if case .part(let frame, _) = old.content, seen.insert(digest).inserted {
                left[frame, default: 0] += size
            }
        }
        for (frame, size) in left
        where size * 2 < Int64(writer.previous.frames[frame].length) {
            abandonedFrames.insert(frame)
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
                if let surveyed = digests[entries.count], let here = use(surveyed) {
                    (digest, content) = (surveyed, here)
                } else {
                    let file = try File.open(readingRegular: entry.file)
                    let before = try file.identity()
                    let (read, stored) = try await add(file, size: size)
                    let isUnchanged = try file.identity() == before
                    (digest, content) = (read, isUnchanged ? stored : nil)
                }
            } catch {
                throw Task.isCancelled ? .cancelled : .file(error)
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

    /// Adds the content of a file; returns `nil` content if its size has changed.
    private mutating func add(
        _ file: borrowing File,
        size: Int64
    ) async throws(FileError) -> (Digest, Content?) {
        var small: [UInt8] = []
        var hasher = SHA256Hasher()
        var length: Int64 = 0
        while case let count = try file.read(into: &buffer, at: length), count > 0 {
            try FileError.checkCancellation()
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
        return (digest, try await chunk(file, size: size, digest: digest))
    }

    private func previousFile(with digest: Digest) -> ContentIndex.File? {
        known[digest].flatMap { writer.previous.entries.file(at: $0) }
    }

    /// Returns whether no frame of a list of the previous version is in a damaged bundle.
    private func isUsable(_ list: [Int]) -> Bool {
        let (frames, damaged) = (writer.previous.frames, damaged)
        return damaged.isEmpty || !list.contains { damaged.contains(frames[$0].bundle) }
    }

    /// Returns existing content with this digest, from this version or the previous one.
    private mutating func use(_ digest: Digest) -> Content? {
        if let entry = contents[digest] { return .same(entry: entry) }
        switch previousFile(with: digest)?.content {
        case .part(let frame, let offset)
        where !abandonedFrames.contains(frame) && isUsable([frame]):
            return .part(packer.add(previous: frame), offset: offset)
        case .frames(let list) where isUsable(list):
            return .frames(list.map { packer.add(previous: $0) })
        default:
            return nil
        }
    }

    /// Adds a small file to a cluster that becomes one frame.
    private mutating func gather(
        _ bytes: [UInt8],
        into cluster: Int
    ) async throws(FileError) -> Content {
        if clusters[cluster].bytes.count + bytes.count > IndexedPackWriter.clusterSize {
            try await close(cluster)
        }
        clusters[cluster].members.append((entries.count, clusters[cluster].bytes.count))
        clusters[cluster].bytes += bytes
        // The entry gets its frame when the cluster is closed.
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

    /// Splits a large file into frames; returns `nil` if its content no longer has this size and digest.
    private mutating func chunk(
        _ file: borrowing File,
        size: Int64,
        digest: Digest
    ) async throws(FileError) -> Content? {
        var hasher = SHA256Hasher()
        var slots: [FramePacker.Slot] = []
        var window: [UInt8] = []
        var offset: Int64 = 0
        var start = 0
        while true {
            try FileError.checkCancellation()
            // A buffer holds several chunks.
            if window.count - start < ContentChunker.maximum, offset < size {
                window.removeFirst(start)
                start = 0
                let count = try file.read(into: &buffer, at: offset)
                offset += Int64(count)
                guard count > 0, offset <= size else { return nil }
                hasher.update(buffer.span.extracting(0..<count))
                window += buffer[..<count]
            }
            guard start < window.count else { break }
            let rest = window.span.extracting(start..<window.count)
            let length = ContentChunker.firstChunk(of: rest)
            slots.append(try await packer.add(Array(window[start..<start + length])))
            start += length
        }
        return hasher.finish() == digest ? .frames(slots) : nil
    }

    /// Returns the directories that have entries, as the bytes of their paths.
    private static func parents(of entries: [Entry]) -> Set<[UInt8]> {
        var parents: Set<[UInt8]> = []
        var last: [UInt8] = []
        for entry in entries {
            guard let parent = entry.path.parent, !parent.text.utf8.elementsEqual(last) else {
                continue
            }
            last = Array(parent.text.utf8)
            parents.insert(last)
        }
        return parents
    }

    /// Creates the version from all added entries.
    consuming func finish() async throws(FileError) -> UnpublishedVersion {
        for cluster in clusters.indices { try await close(cluster) }
        let entries = entries
        let previous = writer.previous
        let packed = try await packer.finish()
        let positions = packed.positions
        var index = ContentIndex(
            bundles: previous.bundles + packed.newBundles.bundles,
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
        let parents = Self.parents(of: entries)
        index.entries.reserveCapacity(
            entries.count,
            pathBytes: entries.reduce(0) { $0 + $1.path.text.utf8.count }
        )
        for entry in entries {
            // A directory with entries is implied by them.
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
        return UnpublishedVersion(
            index: index,
            newBundles: packed.newBundles,
            newBytes: packed.newBytes
        )
    }
}

extension FileError {
    /// Throws if the current task is cancelled.
    static func checkCancellation() throws(FileError) {
        if Task.isCancelled { throw FileError("package", path: "", errno: .canceled) }
    }
}
