import Logging
import StageContainer
import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension IndexSource {
    /// The patch of an update that was requested before the index.
    struct EarlyPatch: Sendable {
        /// The downloaded patch, whose content is still to be written; `nil` if it could not be downloaded.
        var download: VerifiedDownload?

        /// Removes the patch, which is not used, and ends the download: its space is needed, and other packs may wait for the lock.
        func discard() throws(StageError) {
            guard let download else { return }
            defer { download.end() }
            try download.remove()
        }
    }

    /// Takes the patch of an update before the index, and restores the index from the digests of the patch's content.
    ///
    /// Decodes the patch, but writes nothing of it: its content is verified by the index. The caller decodes it again to write
    /// the content, and ends the download.
    ///
    /// Stores the index in the area if the content of the patch leads to it. It is not decoded here, while both versions
    /// are in memory.
    ///
    /// - Parameters:
    ///   - area: The staging area, which stores the index.
    ///   - base: The staged generation.
    ///   - figures: Receives the number of bytes transferred and their source.
    /// - Returns: The patch; `nil` if no patch was requested: the manifest names none from the staged generation with a delta of the
    ///   index, the area has content, another way transfers fewer bytes, or there is not enough space or memory.
    /// - Throws: ``StageError`` if the index is too large for the pack's files, the older index or the patch cannot be read, or
    ///   the task is cancelled.
    func takePatchFirst(
        in area: StagingArea,
        base: Base?,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> EarlyPatch? {
        guard let base, let patch = patch(from: base), let indexDelta = patch.indexDelta,
            try await !hasContent(area)
        else { return nil }
        var candidates = indexFetch.candidates(from: base)
        candidates.archive = try await remaining(work.pack.archive, in: area)
        candidates.patch = try await remaining(
            patch.size,
            of: patch.digest,
            with: work.pack.contentUsageByArchive,
            in: area
        )
        guard let choice = indexFetch.choiceBeforeIndex(among: candidates) else { return nil }
        try indexFetch.checkSize()
        work.report(.chose(choice))
        let (delta, downloaded) = try await fetch(indexDelta, countingIn: &figures) {
            (figures) async throws(StageError) in
            try await fetch(patch, countingIn: &figures)
        }
        let early = EarlyPatch(download: try downloaded.get())
        guard let download = early.download else { return early }
        do throws(StageError) {
            if let delta = try delta.get() {
                try await restore(from: delta, by: patch, in: download.path, from: base, to: area)
            }
        } catch {
            download.end()
            throw error
        }
        return early
    }

    /// Restores an index from its delta and the content of a patch, and writes it to the area; logs why if that fails.
    private func restore(
        from delta: [UInt8],
        by patch: PackIndex.Patch,
        in path: FilePath,
        from base: Base,
        to area: StagingArea
    ) async throws(StageError) {
        let index = try await indexFetch.indexWithoutDigests(from: delta, after: base.directory)
        guard let index else {
            log("the delta of the index is not one from the staged version", of: patch)
            return
        }
        let usable = await indexFetch.usablePatch(from: base, to: index)
        guard let usable else { return }
        // Without the pieces of the older version, which are not needed to restore the index.
        let content = usable.content
        let decoder = PatchDecoder(patch: usable, base: base)
        let result = try await decoding { cancellation throws(FileError) in
            try decoder.digests(of: path) { cancellation.isRequested }
        }
        let isRestored = try await indexFetch.write(
            index,
            restoredBy: result.digests,
            of: content,
            to: area.directory
        )
        guard !isRestored else { return }
        log(result.fault ?? "its content does not lead to the index of the manifest", of: patch)
    }
}

extension IndexFetch {
    /// Returns the ways to transfer the pack, without an archive and a patch.
    ///
    /// - Parameter base: The staged generation; `nil` if no version of the pack is staged.
    /// - Returns: The candidates.
    func candidates(from base: IndexSource.Base?) -> TransferCandidates {
        TransferCandidates(
            of: reference,
            isUpdate: base != nil,
            from: base?.contentMap.indexDigest
        )
    }

    /// Returns the choice of the way that is taken before the index; `nil` if the index is fetched first, also if the patch
    /// may need more memory than is available.
    func choiceBeforeIndex(among candidates: TransferCandidates) -> TransferChoice? {
        guard let choice = candidates.choiceBeforeIndex else { return nil }
        if choice.way == .patch, let patch = candidates.namedPatch,
            UsablePatch.maximumMemory(of: patch) > ByteCount(AvailableMemory.byteCount())
        {
            return nil
        }
        return choice
    }
}
