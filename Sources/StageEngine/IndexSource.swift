import StageContainer
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Stages an indexed pack: fetches its index, reuses what older generations hold, and fetches the missing
/// frames.
///
/// Each frame is verified before it is decompressed, and written once.
struct IndexSource: Sendable {
    let work: PackWork
    let reference: PackIndex

    /// The generation that the new one is made from; the lease keeps it from being removed.
    struct Base: Sendable {
        let lease: Lease
        let directory: Directory
        let content: Directory
        /// Lookup of the generation's files and frames by digest.
        let contentMap: BaseContentMap

        init?(_ lease: Lease?) throws(FileError) {
            guard let lease else { return nil }
            self.lease = lease
            directory = try Directory.open(lease.content.removingLastComponent())
            guard let content = try directory.directory(FilePath(ContainerLayout.content)) else {
                return nil
            }
            self.content = content
            // Returns the heap memory that reading the generation needed to the system.
            defer { HeapMemory.release() }
            contentMap = try BaseContentMap(of: directory)
        }
    }

    /// The state of filling one staging area.
    struct Run: Sendable {
        let tree: IndexedTree
        let area: StagingArea
        let base: Base?
        /// The patch that was requested before the index; `nil` if there was none.
        var earlyPatch: EarlyPatch?
        let failures = FailedFetches()
    }

    /// Fills the area, resuming what an earlier run left in it.
    func fill(_ area: StagingArea) async throws(StageError) -> ContentSource.Filling {
        // Before the index is decoded, so that the memory for reading both is not needed at the same time.
        let base = try await base()
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let unpacked = try await takeArchiveFirst(in: area, base: base, countingIn: &figures)
        let patch = try await takePatchFirst(in: area, base: base, countingIn: &figures)
        defer { patch?.download?.end() }
        let index: VerifiedIndex
        if let restored = unpacked?.index {
            index = restored
        } else {
            // From the area if the content of the patch led to it.
            index = try await self.index(for: area.directory, base: base, countingIn: &figures)
        }
        let tree = IndexedTree(index, content: area.content)
        let run = Run(tree: tree, area: area, base: base, earlyPatch: patch)
        try await checkSpace(of: run, areFilesUnpacked: unpacked?.directory != nil)
        var reusable = try await local(in: run)
        let local = tree.index.storedSize - tree.index.storedLength(of: reusable.missing)
        figures.reused = figures.reused + max(.zero, local)
        if let unpacked, let directory = unpacked.directory {
            reusable = try await takeFiles(
                from: directory,
                in: run,
                reusing: reusable,
                areVerified: unpacked.isVerified
            )
        }
        if unpacked == nil || !reusable.missing.isEmpty {
            // An archive that has not provided all files is not downloaded again.
            let archive = unpacked == nil ? work.pack.archive : nil
            try await complete(run, from: reusable, archive: archive, countingIn: &figures)
        }
        figures.transferred = figures.transferred + run.failures.received
        work.report(.verified)
        try await StageError.blocking { () throws(FileError) in
            var cursor = DirectoryCursor(area.content)
            try tree.makeLinks(&cursor)
        }
        return ContentSource.Filling(
            figures: figures,
            digests: .index(tree.index, directories: tree.directoryCount)
        )
    }

    /// Checks that the file system has room for everything that the index names, before any of it is created: a manifest need not
    /// state the number of directories.
    ///
    /// An area with content was checked by the run that began it.
    private func checkSpace(of run: Run, areFilesUnpacked: Bool) async throws(StageError) {
        try await withBlockingThread { () throws(StageError) -> Void in
            let free = try StageError.wrapping { () throws(FileError) -> FreeSpace? in
                guard try run.area.content.entries().isEmpty else { return nil }
                return try run.area.directory.freeSpace()
            }
            guard let free else { return }
            let created = CreatedContent(
                of: run.tree.index,
                directories: run.tree.directoryCount,
                after: run.base,
                areFilesUnpacked: areFilesUnpacked
            )
            try created.check(against: free)
        }
    }

    /// Finds the content that needs no network.
    private func local(in run: Run) async throws(StageError) -> ReusableContent {
        try await StageError.blocking { () throws(FileError) in
            // Returns the heap memory of this work, and of decoding the index, to the system.
            defer { HeapMemory.release() }
            let areaInventory = try begin(run.tree, in: run.area)
            return ReusableContent(of: run.tree, areaInventory: areaInventory, base: run.base)
        }
    }

    private func base() async throws(StageError) -> Base? {
        let lease = try await StageError.blocking { () throws(ContainerError) in
            try work.container.reader.lease(work.pack.id, marksUse: false)
        }
        return try await StageError.blocking { () throws(FileError) in try Base(lease) }
    }

    /// Prepares a tree: creates directories, finds what an earlier run left in the area, and links in files
    /// that were fetched individually.
    private func begin(
        _ tree: IndexedTree,
        in area: StagingArea
    ) throws(FileError) -> IndexedTree.Inventory {
        var cursor = DirectoryCursor(area.content)
        // After a disk error the page cache can differ from the disk. Syncing allows dropping the cache, so
        // that the comparison reads the disk.
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
                try tree.reuseFile(
                    for: position,
                    from: path,
                    of: &fetched,
                    into: &cursor,
                    using: &buffer
                )
        }
        return inventory
    }

    /// Completes the files of a tree in the way that transfers the fewest bytes.
    private func complete(
        _ run: Run,
        from local: ReusableContent,
        archive: PackArchive?,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) {
        guard work.pack.archive != nil || patch(from: run.base) != nil else {
            try await takeObjects(
                run,
                from: local,
                deltas: .unknown,
                unlessOver: nil,
                countingIn: &figures
            )
            return
        }
        var local = local
        var patch = await indexFetch.usablePatch(from: run.base, to: run.tree.index)
        // A patch that could not be downloaded is not requested again.
        if let early = run.earlyPatch, early.download == nil { patch = nil }
        var (choice, deltas) = try await chooseTransfer(
            for: run,
            reusing: local,
            archive: archive,
            patch: patch,
            countingIn: &figures
        )
        if choice.way != .patch { try run.earlyPatch?.discard() }
        if choice.way != .patch || run.earlyPatch == nil { work.report(.chose(choice)) }
        if choice.way == .patch, let patch {
            local = try await take(patch, in: run, reusing: local, countingIn: &figures)
            // Usually empty: a patch without faults provides everything.
            if !local.missing.isEmpty {
                (choice, deltas) = try await chooseTransfer(
                    for: run,
                    reusing: local,
                    archive: archive,
                    patch: nil,
                    countingIn: &figures
                )
                work.report(.chose(choice))
            }
        }
        try await complete(
            run,
            from: local,
            archive: archive,
            by: choice,
            deltas: deltas,
            countingIn: &figures
        )
    }

    /// Completes the files of a tree from objects or from the archive.
    private func complete(
        _ run: Run,
        from local: ReusableContent,
        archive: PackArchive?,
        by choice: TransferChoice,
        deltas: Deltas,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) {
        var (choice, local) = (choice, local)
        var failure: StageError?
        if choice.way != .archive {
            do throws(StageError) {
                let limit = choice.archive
                try await takeObjects(
                    run,
                    from: local,
                    deltas: deltas,
                    unlessOver: limit,
                    countingIn: &figures
                )
                return
            } catch {
                // Received frames stay in the area.
                choice = try await self.choice(
                    of: archive,
                    after: error,
                    insteadOf: choice,
                    for: local.missing,
                    in: run
                )
                if choice.lacksObjects {
                    failure = error
                    // The objects may be those of damaged files of the generation, which the archive replaces, too.
                    local = local.withoutBase
                }
                work.report(.chose(choice))
            }
        }
        if let archive, choice.archive != nil {
            let before = local.missing.count
            local = try await takeArchive(archive, in: run, reusing: local, countingIn: &figures)
            // The same objects would fail again.
            if let failure, local.missing.count == before { throw failure }
        }
        if !local.missing.isEmpty {
            choice.archive = nil
            work.report(.chose(choice))
        }
        try await takeObjects(
            run,
            from: local,
            deltas: deltas,
            unlessOver: nil,
            countingIn: &figures
        )
    }

    /// Completes the files of a tree from objects: takes content from the staged generation while the network
    /// delivers the rest, and then fetches what neither delivered.
    ///
    /// - Throws: `TransferError.unacceptable(url:_:)` for ranges if the server does not support them and whole
    ///   bundles are larger than `limit`.
    private func takeObjects(
        _ run: Run,
        from local: ReusableContent,
        deltas: Deltas,
        unlessOver limit: ByteCount?,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) {
        let (tree, missing) = (run.tree, local.missing)
        let (lost, fetched) = try await withBoth {
            await Result { () async throws(StageError) in try await take(local) }
        } and: {
            await Result { () async throws(StageError) in
                // After an archive or a patch, no frame is missing as a rule.
                guard !missing.isEmpty else {
                    return FrameDownloader.Outcome.nothing
                }
                let deltas = try await source(of: deltas, for: missing, of: tree, run.base)
                let fetch = FrameDownloader(
                    source: self,
                    tree: tree,
                    done: local.expected.done,
                    deltas: deltas.source,
                    limit: limit,
                    failures: run.failures
                )
                var fetched = try await fetch.run(missing)
                fetched.received = fetched.received + deltas.received
                return fetched
            }
        }
        figures.add(fetched)
        let left = lost.frames.union(fetched.undecodedFrames)
        if !left.isEmpty {
            var done = local.expected.done
            for file in lost.files { done[file] = false }
            let fetch = FrameDownloader(
                source: self,
                tree: tree,
                done: done,
                deltas: nil,
                limit: limit,
                failures: run.failures
            )
            figures.add(try await fetch.run(Array(left)))
            let undecodedLength = tree.index.storedLength(of: left.subtracting(missing))
            figures.reused = max(.zero, figures.reused - undecodedLength)
        }
    }

    private func take(
        _ local: ReusableContent
    ) async throws(StageError) -> ReusableContent.UnusableContent {
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
    fileprivate mutating func add(_ fetched: FrameDownloader.Outcome) {
        transferred = transferred + fetched.received
        source = fetched.source ?? source
    }
}

extension FrameDownloader.Outcome {
    /// The outcome of a fetch without requests.
    fileprivate static let nothing = FrameDownloader.Outcome(
        received: .zero,
        source: nil,
        undecodedFrames: []
    )
}
