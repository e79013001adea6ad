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
    static let indexName = ContainerLayout.index

    /// The generation that the new one is made from, kept from being removed.
    struct Base: Sendable {
        let lease: Lease
        let directory: Directory
        let content: Directory
        /// What is in `content`, as it says itself.
        let held: HeldContent

        init?(_ lease: Lease?) throws(FileError) {
            guard let lease else { return nil }
            self.lease = lease
            directory = try Directory.open(lease.content.removingLastComponent())
            guard let content = try directory.directory(FilePath(ContainerLayout.content)) else {
                return nil
            }
            self.content = content
            // What is needed only to read it is given back.
            defer { HeapMemory.release() }
            held = try HeldContent(of: directory)
        }
    }

    /// Fills the area, and returns what that took.
    func fill(_ area: StagingArea) async throws(StageError) -> StagingFigures {
        // Before the index is there: what both take while they are read is not needed at once.
        let base = try await base()
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let index = try await index(for: area.directory, base, &figures)
        let declared = ContentFigures(fileCount: pack.fileCount, size: pack.installedSize)
        let found = ContentFigures(fileCount: index.fileCount, size: index.installedSize)
        guard found == declared else {
            throw .incompleteContent(declared: declared, actual: found)
        }
        let tree = IndexedTree(index: index, content: area.content)
        let local = try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in
                // What reading the index took besides, and this.
                defer { HeapMemory.release() }
                return LocalContent(of: tree, begun: try begin(tree, area), base: base)
            }
        }
        try await complete(tree, from: local, base, &figures)
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

    private func base() async throws(StageError) -> Base? {
        try await blocking { () throws(StageError) in
            let lease = try StageError.wrapping { () throws(ContainerError) in
                try container.reader.lease(pack.id, marksUse: false)
            }
            return try Self.storing { () throws(FileError) in try Base(lease) }
        }
    }

    /// Begins a tree: the directories, what an earlier run has left in the area, and files that were
    /// fetched one by one.
    private func begin(
        _ tree: IndexedTree,
        _ area: StagingArea
    ) throws(FileError) -> IndexedTree.Inventory {
        var cursor = DirectoryCursor(area.content)
        // After an error of the disk the kernel's cache can hold what the disk does not: what is compared
        // is read from the disk.
        if area.isContinued { try area.content.synchronizeFileSystem() }
        try tree.prepare(&cursor)
        var inventory =
            area.isContinued ? try tree.inventory(&cursor) : tree.freshInventory()
        let path = FilePath("\(ContainerLayout.files)/\(reference.contentDigest)/content")
        guard let content = try container.root.directory(path) else { return inventory }
        var fetched = DirectoryCursor(content)
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for (position, path, _) in tree.index.files where !inventory.done[position] {
            inventory.done[position] =
                try tree.take(position, from: path.text, &fetched, &cursor, using: &buffer)
        }
        return inventory
    }

    /// Completes the files of a tree: what is said to be in the staged generation is taken from there
    /// while the network brings the rest, and then what came of neither.
    private func complete(
        _ tree: IndexedTree,
        from local: LocalContent,
        _ base: Base?,
        _ figures: inout StagingFigures
    ) async throws(StageError) {
        let missing = local.missing
        let (lost, fetched) = try await withBoth {
            await Result { () async throws(StageError) in try await take(local) }
        } and: {
            await Result { () async throws(StageError) in
                let deltas = try await deltas(for: missing, of: tree, base)
                let fetch = FrameFetch(
                    work: self,
                    tree: tree,
                    done: local.expected.done,
                    deltas: deltas.source
                )
                var fetched = try await fetch.run(missing)
                fetched.received = fetched.received + deltas.received
                return fetched
            }
        }
        figures.add(fetched)
        let left = lost.frames.union(fetched.unmade)
        if !left.isEmpty {
            var done = local.expected.done
            for file in lost.files { done[file] = false }
            let fetch = FrameFetch(work: self, tree: tree, done: done, deltas: nil)
            figures.add(try await fetch.run(Array(left)))
        }
        let needed = tree.index.storedLength(of: left.union(missing))
        figures.reused = max(.zero, tree.index.storedSize - needed)
    }

    private func take(_ local: LocalContent) async throws(StageError) -> LocalContent.Lost {
        let lost = try await withCancellableThread { cancellation throws(StageError) in
            try Self.storing { () throws(FileError) in
                try local.take { cancellation.isRequested }
            }
        }
        guard let lost else { throw .cancelled }
        return lost
    }
}

extension StagingFigures {
    fileprivate mutating func add(_ fetched: FrameFetch.Outcome) {
        transferred = transferred + fetched.received
        source = fetched.source ?? source
    }
}

/// What came of one of two pieces of work.
private enum Part<First: Sendable, Second: Sendable>: Sendable {
    case first(Result<First, StageError>)
    case second(Result<Second, StageError>)
}

/// Runs two pieces of work at once; where one fails, the other is cancelled and waited for.
private func withBoth<First: Sendable, Second: Sendable>(
    _ first: @escaping @Sendable () async -> Result<First, StageError>,
    and second: @escaping @Sendable () async -> Result<Second, StageError>
) async throws(StageError) -> (First, Second) {
    let both = await withTaskGroup(of: Part<First, Second>.self) { group in
        group.addTask { .first(await first()) }
        group.addTask { .second(await second()) }
        var (first, second): (First?, Second?)
        var failure: StageError?
        for await part in group {
            switch part {
            case .first(.success(let value)): first = value
            case .second(.success(let value)): second = value
            case .first(.failure(let error)), .second(.failure(let error)):
                // The one that came of the other's failure is not the one to tell.
                failure = failure ?? error
                group.cancelAll()
            }
        }
        guard let first, let second else {
            return Result<(First, Second), StageError>.failure(failure ?? .cancelled)
        }
        return .success((first, second))
    }
    return try both.get()
}

extension IndexedWork {
    /// Returns the index: the one in the area, or else from the manifest's server, as a delta if there
    /// is one from the staged generation's.
    func index(
        for area: Directory,
        _ base: Base?,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> ContentIndex {
        guard reference.contentSize.rawValue <= Int64(bounds.byteCount) else {
            throw .index(reason: "it is larger than one of \(pack.fileCount) files can be")
        }
        if let bytes = try await bytes(in: area), Digest(of: bytes) == reference.contentDigest {
            return try await decode(bytes)
        }
        if let base, let digest = base.held.indexDigest,
            let bytes = try await updated(base.directory, digest, &figures)
        {
            return try await keep(bytes, in: area)
        }
        let stored = try await object(
            reference.url,
            reference.size,
            reference.digest,
            &figures
        )
        return try await keep(try decompress(stored), in: area)
    }

    /// Decompresses an index, and verifies it.
    ///
    /// Not in an asynchronous function: the optimiser of Swift 6.3 frees the memory of the two out of
    /// order there, which ends the process.
    private func decompress(_ stored: [UInt8]) throws(StageError) -> [UInt8] {
        var decompressor = FrameDecompressor()
        let bytes: [UInt8]
        do throws(FrameError) {
            let size = Int(reference.contentSize.rawValue)
            bytes = try decompressor.decompress(stored.span, to: size)
        } catch {
            throw .index(reason: error.description)
        }
        guard Digest(of: bytes) == reference.contentDigest else {
            throw .index(reason: "it is not what the manifest names when it is decompressed")
        }
        return bytes
    }

    /// Makes an index from an older one and what changes it; `nil` where that does not lead to it.
    private func decompress(_ delta: [UInt8], after old: [UInt8]) -> [UInt8]? {
        var decompressor = FrameDecompressor()
        // Where it does not lead there the index is fetched whole.
        let bytes = try? decompressor.decompress(
            delta.span,
            after: old.span,
            to: Int(reference.contentSize.rawValue)
        )
        guard let bytes, Digest(of: bytes) == reference.contentDigest else { return nil }
        return bytes
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
        return decompress(stored, after: old)
    }

    /// The limits of the index, from what the manifest says of the pack.
    private var bounds: IndexBounds {
        IndexBounds(fileCount: pack.fileCount, installedSize: pack.installedSize)
    }

    private func bytes(in directory: Directory) async throws(StageError) -> [UInt8]? {
        try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in try Self.indexBytes(in: directory) }
        }
    }

    /// Reads the index beside the content; `nil` where there is none, or it cannot be one.
    static func indexBytes(in directory: Directory) throws(FileError) -> [UInt8]? {
        do throws(FileError) {
            return try directory.bytes(of: FilePath(indexName), limit: IndexLimits.byteCount)
        } catch {
            guard error.isWrongKindOrSize else { throw error }
            return nil
        }
    }

    /// Decodes an index whose digest is right, after putting it into the area.
    private func keep(
        _ bytes: [UInt8],
        in area: Directory
    ) async throws(StageError) -> ContentIndex {
        try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in
                try area.write(bytes, to: Self.indexName, durably: false, exactly: .file)
            }
        }
        return try await decode(bytes)
    }

    private func decode(_ bytes: [UInt8]) async throws(StageError) -> ContentIndex {
        try await blocking { () throws(StageError) in
            do throws(IndexError) {
                return try ContentIndex(decoding: bytes, within: bounds)
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
