import Logging
import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Brings an indexed pack into a staging area: its index, what older generations have of it, and the
/// frames that are missing, each verified before it is decompressed and written once.
struct IndexedWork: Sendable {
    let stager: Stager
    let manifest: AcceptedManifest
    let container: Container
    let pack: Pack
    let reference: PackIndex
    let report: @Sendable (StagingEvent) -> Void

    /// The name of the index beside the content.
    static let indexName: FilePath.Component = "index"

    /// The generation that the new one is made from, kept from being removed.
    private struct Base: Sendable {
        let lease: Lease
        let directory: Directory

        init?(_ lease: Lease?) throws(FileError) {
            guard let lease else { return nil }
            self.lease = lease
            directory = try Directory.open(lease.content.removingLastComponent())
        }
    }

    /// Fills the area, and returns what that took.
    func fill(_ area: StagingArea) async throws(StageError) -> StagingFigures {
        let base = try await blocking { () throws(StageError) in
            let lease = try StageError.wrapping { () throws(ContainerError) in
                try container.reader.lease(pack.id, marksUse: false)
            }
            return try Self.storing { () throws(FileError) in try Base(lease) }
        }
        // Before the index is there: what both take while they are read is not needed at once.
        let held = try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) -> HeldContent? in
                guard let base else { return nil }
                defer { HeapMemory.release() }
                return try HeldContent(of: base.directory)
            }
        }
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let index = try await index(for: area.directory, base?.directory, held, &figures)
        let declared = ContentFigures(fileCount: pack.fileCount, size: pack.installedSize)
        let found = ContentFigures(fileCount: index.fileCount, size: index.installedSize)
        guard found == declared else {
            throw .incompleteContent(declared: declared, actual: found)
        }
        let tree = IndexedTree(index: index, content: area.content)
        let local = try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in
                try reuse(in: tree, area, held, base?.directory)
            }
        }
        let missing = tree.frames(except: local.done).filter { !local.frames.contains($0) }
        let left = try await makeFrames(
            missing,
            of: tree,
            except: local.done,
            from: base?.directory,
            held,
            &figures
        )
        let fetch = FrameFetch(work: self, tree: tree, done: local.done)
        let (received, source) = try await fetch.run(left)
        figures.transferred = figures.transferred + received
        figures.source = source ?? figures.source
        let needed = missing.reduce(Int64(0)) { $0 + Int64(index.frames[$1].storedLength) }
        figures.reused = max(.zero, index.storedSize - ByteCount(needed))
        report(.verified)
        try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in
                var cursor = DirectoryCursor(area.content)
                try tree.makeLinks(&cursor)
                try ContentListing.write(for: area) { take throws(FileError) in
                    try index.list(take)
                }
            }
        }
        return figures
    }

    /// What is here already: from an earlier run in the area, and from the staged generation.
    private func reuse(
        in tree: IndexedTree,
        _ area: StagingArea,
        _ held: HeldContent?,
        _ base: Directory?
    ) throws(FileError) -> IndexedTree.Inventory {
        var cursor = DirectoryCursor(area.content)
        try tree.prepare(&cursor)
        var inventory =
            area.isContinued ? try tree.inventory(&cursor) : tree.freshInventory()
        try reuseFiles(in: tree, &inventory, &cursor)
        guard let held, let base,
            let content = try base.directory(FilePath(ContainerLayout.content))
        else { return inventory }
        var old = DirectoryCursor(content)
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for (position, _, file) in tree.index.files where !inventory.done[position] {
            guard let path = held.path(of: file) else { continue }
            inventory.done[position] =
                try tree.take(position, from: path, &old, &cursor, using: &buffer)
        }
        try reuseFrames(in: tree, held, &old, &inventory, &cursor)
        return inventory
    }

    /// Takes over files that were fetched one by one.
    private func reuseFiles(
        in tree: IndexedTree,
        _ inventory: inout IndexedTree.Inventory,
        _ cursor: inout DirectoryCursor
    ) throws(FileError) {
        let path = FilePath("\(ContainerLayout.files)/\(reference.contentDigest)/content")
        guard let content = try container.root.directory(path) else { return }
        var fetched = DirectoryCursor(content)
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for (position, path, _) in tree.index.files where !inventory.done[position] {
            inventory.done[position] =
                try tree.take(position, from: path.text, &fetched, &cursor, using: &buffer)
        }
    }

    /// Takes frames of files that have changed in part from the staged generation.
    private func reuseFrames(
        in tree: IndexedTree,
        _ held: HeldContent,
        _ old: inout DirectoryCursor,
        _ inventory: inout IndexedTree.Inventory,
        _ cursor: inout DirectoryCursor
    ) throws(FileError) {
        var path: String?
        var source: File?
        for position in tree.frames(except: inventory.done)
        where !inventory.frames.contains(position) {
            let frame = tree.index.frames[position]
            guard let place = held.place(of: frame) else { continue }
            if path != place.path {
                path = place.path
                let there = try old.place(of: place.path)
                source = try there?.directory.file(reading: there?.name ?? FilePath())
            }
            var bytes = [UInt8](repeating: 0, count: frame.length)
            let count = try source?.read(into: &bytes, at: place.offset) ?? 0
            guard count == frame.length, Digest(of: bytes) == frame.digest else { continue }
            _ = try tree.write(position, bytes, except: inventory.done, &cursor)
            inventory.frames.insert(position)
        }
    }
}

extension IndexedWork {
    /// Returns the index: the one in the area, or else from the manifest's server, as a delta if there
    /// is one from the staged generation's.
    func index(
        for area: Directory,
        _ base: Directory?,
        _ held: HeldContent?,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> ContentIndex {
        if let bytes = try await bytes(in: area), Digest(of: bytes) == reference.contentDigest {
            return try await decode(bytes)
        }
        if let base, let digest = held?.indexDigest,
            let bytes = try await updated(base, digest, &figures)
        {
            return try await keep(bytes, in: area)
        }
        let stored = try await object(
            reference.url,
            reference.size,
            reference.digest,
            &figures
        )
        var decompressor = FrameDecompressor()
        let bytes: [UInt8]
        do throws(FrameError) {
            bytes = try decompressor.decompress(
                stored.span,
                to: Int(reference.contentSize.rawValue)
            )
        } catch {
            throw .index(reason: error.description)
        }
        guard Digest(of: bytes) == reference.contentDigest else {
            throw .index(reason: "it is not what the manifest names when it is decompressed")
        }
        return try await keep(bytes, in: area)
    }

    /// Takes the index from the staged generation, whose index has this digest, or makes it from that and
    /// what is published to change it; `nil` where there is nothing, or it does not lead there.
    private func updated(
        _ base: Directory,
        _ digest: Digest,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> [UInt8]? {
        if digest == reference.contentDigest {
            let bytes = try await bytes(in: base)
            return bytes.flatMap { Digest(of: $0) == digest ? $0 : nil }
        }
        guard let delta = reference.deltas.first(where: { $0.base == digest }),
            let old = try await bytes(in: base),
            let stored = try? await object(delta.url, delta.size, delta.digest, &figures)
        else { return nil }
        var decompressor = FrameDecompressor()
        let bytes = try? decompressor.decompress(
            stored.span,
            after: old.span,
            to: Int(reference.contentSize.rawValue)
        )
        guard let bytes, Digest(of: bytes) == reference.contentDigest else { return nil }
        return bytes
    }

    private func bytes(in directory: Directory) async throws(StageError) -> [UInt8]? {
        try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in
                try directory.file(reading: FilePath(Self.indexName))?
                    .readAll(limit: IndexLimits.byteCount)
            }
        }
    }

    /// Decodes an index whose digest is right, after putting it into the area.
    private func keep(
        _ bytes: [UInt8],
        in area: Directory
    ) async throws(StageError) -> ContentIndex {
        try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in
                try area.write(bytes, to: Self.indexName, durably: false)
            }
        }
        return try await decode(bytes)
    }

    private func decode(_ bytes: [UInt8]) async throws(StageError) -> ContentIndex {
        try await blocking { () throws(StageError) in
            do throws(IndexError) {
                return try ContentIndex(decoding: bytes)
            } catch {
                throw .index(reason: error.description)
            }
        }
    }

    /// Fetches an object of the manifest whole, and verifies it.
    private func object(
        _ url: String,
        _ size: ByteCount,
        _ digest: Digest,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> [UInt8] {
        let mirrors = manifest.manifest.urls(for: url, manifestURL: manifest.record.resolvedURL)
        let document = try await fetch(request(for: mirrors, limit: size))
        figures.transferred = figures.transferred + ByteCount(document.bytes.count)
        guard ByteCount(document.bytes.count) == size, Digest(of: document.bytes) == digest else {
            throw .transfer(.wrongDigest(url: document.url))
        }
        figures.source = document.url
        return document.bytes
    }

    /// A request for an object of the pack, or a part of one.
    func request(for mirrors: [String], limit: ByteCount) -> ContentFetch {
        var request = ContentFetch(mirrors: mirrors, limit: limit)
        request.promise = .archive
        request.allowedDomains = stager.options.allowedDomains.map(AllowedDomains.init)
        request.priority = pack.priority
        request.report = { [report] event in StagingEvent(event).map(report) }
        return request
    }

    func fetch(_ request: ContentFetch) async throws(StageError) -> FetchedDocument {
        do throws(TransferError) {
            guard case .document(let document) = try await stager.engine.fetch(request) else {
                preconditionFailure("an unconditional request is answered with a document")
            }
            return document
        } catch {
            throw error == .cancelled ? .cancelled : .transfer(error)
        }
    }

    func blocking<Value: Sendable>(
        _ body: @escaping @Sendable () throws(StageError) -> Value
    ) async throws(StageError) -> Value {
        try await withBlockingThread(body)
    }

    static func storing<Value>(_ body: () throws(FileError) -> Value) throws(StageError) -> Value {
        do throws(FileError) {
            return try body()
        } catch {
            throw .container(.file(error))
        }
    }
}
