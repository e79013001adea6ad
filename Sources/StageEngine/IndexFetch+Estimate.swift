import StageContainer
import StageIndex
import StageModel
import StageSystem

extension IndexFetch {
    /// The chosen way to fetch missing content, and the results of the requests made for the choice.
    struct Comparison: Sendable {
        var choice: TransferChoice
        var deltas: IndexSource.Deltas
        /// The size of the delta table that was received, in bytes.
        var received: ByteCount
    }

    /// Compares the sizes of the transfer from objects, from the archive and by the patch.
    ///
    /// Requests the table of a delta set only if it can change the choice.
    ///
    /// - Parameters:
    ///   - candidates: The ways that have enough space, with the bytes still to download.
    ///   - missing: The missing frames, by their positions in the index.
    ///   - index: The index.
    ///   - base: The staged generation.
    /// - Returns: The choice.
    /// - Throws: ``StageError`` if the task is cancelled.
    func choose(
        among candidates: TransferCandidates,
        for missing: [Int],
        of index: ContentIndex,
        _ base: IndexSource.Base?
    ) async throws(StageError) -> Comparison {
        let bundles = ByteCount(RangePlan(missing, of: index).byteCount)
        let choice = candidates.choice(objects: bundles)
        guard candidates.needsTable(toCompareWith: choice) else {
            return Comparison(choice: choice, deltas: .unknown, received: .zero)
        }
        let deltas = try await deltas(for: missing, of: index, base)
        guard let source = deltas.source else {
            return Comparison(choice: choice, deltas: .known(nil), received: deltas.received)
        }
        let bytes = source.byteCount(for: missing, of: index)
        return Comparison(
            choice: candidates.choice(objects: bytes),
            deltas: .known(source),
            received: deltas.received
        )
    }

    /// Estimates the transfer for staging the pack.
    ///
    /// Fetches the index, unless the archive or the patch is taken before it, and the table of a delta set if it can change
    /// the choice, and writes nothing.
    ///
    /// - Parameters:
    ///   - candidates: The ways to transfer the pack, with the bytes still to download, whether there is space for them or not.
    ///   - base: The staged generation; `nil` if no version of the pack is staged.
    ///   - available: The free space and inodes of the file system.
    /// - Returns: The choice with exact sizes, and the bytes of all requests of a run.
    /// - Throws: ``StageError`` if the index cannot be fetched.
    func estimate(
        among candidates: TransferCandidates,
        from base: IndexSource.Base?,
        available: AvailableSpace
    ) async throws(StageError) -> TransferEstimate {
        let (pack, patch) = (fetching.pack, candidates.patch)
        func ifFits(_ size: ByteCount?) -> ByteCount? {
            guard let size, available.shortage(for: pack.usage(byDownloadOf: size)) == nil else {
                return nil
            }
            return size
        }
        var candidates = candidates
        candidates.archive = ifFits(candidates.archive)
        candidates.patch = ifFits(patch)
        if let choice = choiceBeforeIndex(among: candidates) { return (choice, choice.byteCount) }
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let index = try await index(in: nil, base: base, countingIn: &figures).content
        let missing = index.framesMissing(from: base?.contentMap)
        // With the index, the patch needs space only for the files that change.
        candidates.patch = nil
        if let size = patch, let base {
            var usage = index.usageOnDisk { _, file in base.contentMap.path(of: file) == nil }
            usage.bytes += size
            usage.inodes += Planner.inodesOfRecords
            let isUsable = await usablePatch(from: base, to: index) != nil
            if isUsable, available.shortage(for: usage) == nil { candidates.patch = size }
        }
        var found = try await choose(among: candidates, for: missing, of: index, base)
        guard found.choice.way == .objects, case .unknown = found.deltas, !missing.isEmpty else {
            let size = found.received + found.choice.byteCount
            return (found.choice, figures.transferred + size)
        }
        let deltas = try await deltas(for: missing, of: index, base)
        if let source = deltas.source {
            found.choice.objects = source.byteCount(for: missing, of: index)
        }
        // The table counts as a part of the transfer from objects.
        found.choice.objects = found.choice.objects + deltas.received
        return (found.choice, figures.transferred + found.choice.objects)
    }
}

extension DeltaSource {
    /// Returns the bytes to request for frames of the newer index: those of the delta set, and those of
    /// bundles for the frames that the set cannot produce.
    func byteCount(for frames: [Int], of index: ContentIndex) -> ByteCount {
        let made = Set(set.frames.lazy.map(\.position))
        let rest = RangePlan(frames.filter { !made.contains($0) }, of: index)
        return ByteCount(plan(for: frames).byteCount + rest.byteCount)
    }
}

extension ContentIndex {
    /// Returns the ascending positions of the frames that a staged generation does not have.
    fileprivate func framesMissing(from base: BaseContentMap?) -> [Int] {
        var wanted: Set<Int> = []
        for (_, file) in files where file.size > 0 && base?.path(of: file) == nil {
            switch file.content {
            case .part(let frame, _): wanted.insert(frame)
            case .frames(let list): wanted.formUnion(list)
            }
        }
        return wanted.filter { base?.location(of: frames[$0]) == nil }.sorted()
    }
}
