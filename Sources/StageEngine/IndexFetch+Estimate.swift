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
    ///   - missing: The missing frames, by their positions in the index.
    ///   - index: The index.
    ///   - base: The staged generation.
    ///   - archive: The bytes of the archive still to download; `nil` if there is no archive or no space for
    ///     it.
    ///   - patch: The bytes of the patch from the staged generation still to download; `nil` likewise.
    /// - Returns: The choice.
    /// - Throws: ``StageError`` if the task is cancelled.
    func choose(
        for missing: [Int],
        of index: ContentIndex,
        _ base: IndexSource.Base?,
        archive: ByteCount?,
        patch: ByteCount?
    ) async throws(StageError) -> Comparison {
        let objects = ByteCount(RangePlan(missing, of: index).byteCount)
        let choice = TransferChoice(objects: objects, archive: archive, patch: patch)
        let least = choice.byteCount
        guard choice.way != .objects, let base,
            let set = reference.delta(from: base.contentMap.indexDigest)?.frames,
            set.size < least, set.tableSize.rawValue <= least.rawValue / 16
        else { return Comparison(choice: choice, deltas: .unknown, received: .zero) }
        let deltas = try await deltas(for: missing, of: index, base)
        guard let source = deltas.source else {
            return Comparison(choice: choice, deltas: .known(nil), received: deltas.received)
        }
        let bytes = source.byteCount(for: missing, of: index)
        return Comparison(
            choice: TransferChoice(objects: bytes, archive: archive, patch: patch),
            deltas: .known(source),
            received: deltas.received
        )
    }

    /// Returns the choice of a first installation that takes the archive before the index; `nil` if the manifest
    /// names no delta of the index from the archive's files, or another way transfers fewer bytes.
    ///
    /// `archive` is the number of bytes of the archive still to download; `nil` if there is no archive or no space for it.
    func choiceBeforeIndex(archive: ByteCount?) -> TransferChoice? {
        guard reference.fileTableDelta != nil else { return nil }
        let choice = TransferChoice(
            forInstalling: reference,
            objects: reference.bundleSize,
            archive: archive
        )
        return choice.way == .archive ? choice : nil
    }

    /// Estimates the transfer for staging the pack.
    ///
    /// Fetches the index, unless the archive or the patch is taken before it, and the table of a delta set if it can change the choice, and writes nothing.
    ///
    /// - Parameters:
    ///   - base: The staged generation; `nil` if no version of the pack is staged.
    ///   - archive: The bytes of the archive still to download; `nil` if there is no archive or no space for
    ///     it.
    ///   - patch: The bytes of the patch from the staged version still to download; `nil` if there is none.
    ///   - precedesIndex: `true` if there is space for the patch beside the whole content, so that it may be taken before the index.
    ///   - available: The free space and inodes of the file system.
    /// - Returns: The choice with exact sizes, and the bytes of all requests of a run.
    /// - Throws: ``StageError`` if the index cannot be fetched.
    func estimate(
        from base: IndexSource.Base?,
        archive: ByteCount?,
        patch: ByteCount?,
        precedesIndex: Bool,
        available: AvailableSpace
    ) async throws(StageError) -> TransferEstimate {
        if base == nil, let choice = choiceBeforeIndex(archive: archive) {
            return (choice, choice.byteCount)
        }
        if precedesIndex, let base,
            let choice = choiceBeforeIndex(from: base, archive: archive, patch: patch)
        {
            return (choice, choice.byteCount)
        }
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let index = try await index(in: nil, base: base, countingIn: &figures).content
        let missing = index.framesMissing(from: base?.contentMap)
        var patch = patch
        if let size = patch, let base {
            var usage = index.usageOnDisk { _, file in base.contentMap.path(of: file) == nil }
            usage.bytes += size
            usage.inodes += Planner.inodesOfRecords
            let isUsable = try await usablePatch(from: base, to: index) != nil
            if !isUsable || available.shortage(for: usage) != nil { patch = nil }
        }
        var found = try await choose(for: missing, of: index, base, archive: archive, patch: patch)
        guard found.choice.way == .objects else {
            return (found.choice, figures.transferred + found.received + found.choice.byteCount)
        }
        if case .unknown = found.deltas, !missing.isEmpty {
            let deltas = try await deltas(for: missing, of: index, base)
            found.deltas = .known(deltas.source)
            found.received = deltas.received
        }
        if case .known(let source?) = found.deltas {
            found.choice.objects = source.byteCount(for: missing, of: index)
        }
        // The table counts as a part of the transfer from objects.
        found.choice.objects = found.choice.objects + found.received
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
        return wanted.filter { base?.place(of: frames[$0]) == nil }.sorted()
    }
}
