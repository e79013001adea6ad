import StageContainer
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Brings an indexed pack into a staging area: its index, what older generations have of it, and the
/// frames that are missing, each verified before it is decompressed and written once.
struct IndexSource: Sendable {
    let work: PackWork
    let reference: PackIndex

    /// The generation that the new one is made from, kept from being removed.
    struct Base: Sendable {
        let lease: Lease
        let directory: Directory
        let content: Directory
        /// The figures of `content`, as the index has them.
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

    /// One area on its way.
    struct Run: Sendable {
        let tree: IndexedTree
        let area: StagingArea
        let base: Base?
    }

    /// Fills the area, continuing what an earlier run has left in it.
    func fill(_ area: StagingArea) async throws(StageError) -> ContentSource.Filling {
        // Before the index is there: what both take while they are read is not needed at once.
        let base = try await base()
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let index = try await index(for: area.directory, base, &figures)
        let tree = IndexedTree(index, content: area.content)
        let run = Run(tree: tree, area: area, base: base)
        let local = try await local(in: run)
        figures.reused = max(
            .zero,
            tree.index.storedSize - tree.index.storedLength(of: local.missing)
        )
        try await complete(run, from: local, &figures)
        work.report(.verified)
        try await StageError.blocking { () throws(FileError) in
            var cursor = DirectoryCursor(area.content)
            try tree.makeLinks(&cursor)
        }
        return ContentSource.Filling(figures: figures, digests: .index(tree.index))
    }

    /// Finds out what needs no network.
    private func local(in run: Run) async throws(StageError) -> LocalContent {
        try await StageError.blocking { () throws(FileError) in
            // What reading the index took besides, and this.
            defer { HeapMemory.release() }
            let begun = try begin(run.tree, run.area)
            return LocalContent(of: run.tree, begun: begun, base: run.base)
        }
    }

    private func base() async throws(StageError) -> Base? {
        let lease = try await StageError.blocking { () throws(ContainerError) in
            try work.container.reader.lease(work.pack.id, marksUse: false)
        }
        return try await StageError.blocking { () throws(FileError) in try Base(lease) }
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
        guard let content = try work.container.root.directory(path) else { return inventory }
        var fetched = DirectoryCursor(content)
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for (position, _) in tree.index.files where !inventory.done[position] {
            let path = tree.index.entries.path(at: position).text
            inventory.done[position] =
                try tree.take(position, from: path, &fetched, &cursor, using: &buffer)
        }
        return inventory
    }

    /// Completes the files of a tree, in the way that takes the fewest bytes.
    private func complete(
        _ run: Run,
        from local: LocalContent,
        _ figures: inout StagingFigures
    ) async throws(StageError) {
        guard let archive = work.pack.archive else {
            try await takeObjects(run, from: local, .unknown, unlessOver: nil, &figures)
            return
        }
        let (first, deltas) = try await choose(run, local, &figures)
        var choice = first
        work.report(.chose(choice))
        if choice.way == .objects {
            do throws(StageError) {
                let limit = choice.archive
                try await takeObjects(run, from: local, deltas, unlessOver: limit, &figures)
                return
            } catch .transfer(.unacceptable(_, .ranges)) {
                // Whole bundles are more than the archive is. What of it came stays where it is.
                choice.objects = run.tree.index.bundleSize(of: local.missing)
                work.report(.chose(choice))
            }
        }
        let left = try await takeArchive(archive, in: run, local, &figures)
        if !left.missing.isEmpty {
            choice.archive = nil
            work.report(.chose(choice))
        }
        try await takeObjects(run, from: left, deltas, unlessOver: nil, &figures)
    }

    /// Completes the files of a tree from objects: what is said to be in the staged generation is taken from
    /// there while the network brings the rest, and then what came of neither.
    ///
    /// - Throws: `TransferError.unacceptable(url:_:)` for ranges that the server does not give, where whole
    ///   bundles have more bytes than `limit`.
    private func takeObjects(
        _ run: Run,
        from local: LocalContent,
        _ deltas: Deltas,
        unlessOver limit: ByteCount?,
        _ figures: inout StagingFigures
    ) async throws(StageError) {
        let (tree, missing) = (run.tree, local.missing)
        let (lost, fetched) = try await withBoth {
            await Result { () async throws(StageError) in try await take(local) }
        } and: {
            await Result { () async throws(StageError) in
                // After an archive everything is here as a rule.
                guard !missing.isEmpty || work.pack.archive == nil else {
                    return FrameFetch.Outcome.nothing
                }
                let deltas = try await source(of: deltas, for: missing, of: tree, run.base)
                let fetch = FrameFetch(
                    source: self,
                    tree: tree,
                    done: local.expected.done,
                    deltas: deltas.source,
                    limit: limit
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
            let fetch = FrameFetch(source: self, tree: tree, done: done, deltas: nil, limit: limit)
            figures.add(try await fetch.run(Array(left)))
            let unmade = tree.index.storedLength(of: left.subtracting(missing))
            figures.reused = max(.zero, figures.reused - unmade)
        }
    }

    private func take(_ local: LocalContent) async throws(StageError) -> LocalContent.Lost {
        let lost = try await withCancellableThread { cancellation throws(StageError) in
            try StageError.wrapping { () throws(FileError) in
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

extension FrameFetch.Outcome {
    /// The outcome without a request.
    fileprivate static let nothing = FrameFetch.Outcome(received: .zero, source: nil, unmade: [])
}

/// The result of one of two pieces of work.
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
