import StageContainer
import StageIndex
import StageModel
import StageSystem
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

    /// Fills the area, continuing what an earlier run has left in it.
    func fill(_ area: StagingArea) async throws(StageError) -> ContentSource.Filling {
        // Before the index is there: what both take while they are read is not needed at once.
        let base = try await base()
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let index = try await index(for: area.directory, base, &figures)
        let tree = IndexedTree(index, content: area.content)
        let local = try await StageError.blocking { () throws(FileError) in
            // What reading the index took besides, and this.
            defer { HeapMemory.release() }
            return LocalContent(of: tree, begun: try begin(tree, area), base: base)
        }
        try await complete(tree, from: local, base, &figures)
        work.report(.verified)
        try await StageError.blocking { () throws(FileError) in
            var cursor = DirectoryCursor(area.content)
            try tree.makeLinks(&cursor)
        }
        return ContentSource.Filling(figures: figures, digests: .index(tree.index))
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
                    source: self,
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
            let fetch = FrameFetch(source: self, tree: tree, done: done, deltas: nil)
            figures.add(try await fetch.run(Array(left)))
        }
        let needed = tree.index.storedLength(of: left.union(missing))
        figures.reused = max(.zero, tree.index.storedSize - needed)
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
