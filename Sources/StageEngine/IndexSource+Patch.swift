import StageModel
import StageSystem

extension IndexSource {
    /// Returns the patch from a staged generation; `nil` if the manifest names none.
    func patch(from base: Base?) -> PackIndex.Patch? {
        reference.delta(from: base?.contentMap.indexDigest)?.patch
    }

    /// Returns the bytes of the patch still to download; `nil` if there is no patch, or not enough space for
    /// it and its content.
    func remainingPatch(in run: Run) async throws(StageError) -> ByteCount? {
        guard let patch = patch(from: run.base) else { return nil }
        return try await remaining(
            patch.size,
            of: patch.digest,
            with: patch.windowSize,
            in: run.area
        )
    }

    /// Downloads the patch, writes the missing content that it restores, and returns the updated local content.
    ///
    /// A bad patch or a failing server is not an error: the content concerned is fetched in another way.
    func takePatch(
        in run: Run,
        reusing local: ReusableContent,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> ReusableContent {
        guard let patch = patch(from: run.base), let base = run.base else { return local }
        let download: VerifiedDownload
        do throws(StageError) {
            download = try await .fetch(
                patch.digest,
                size: patch.size,
                from: patch.url,
                for: work
            )
        } catch {
            try note(error)
            return local
        }
        defer { download.end() }
        figures.add(download.figures)
        let decoder = PatchDecoder(tree: run.tree, base: base, local: local)
        let path = download.path
        // The decoder keeps both versions in memory.
        let inventory = try await work.stager.unpacking.run {
            () async throws(StageError) -> IndexedTree.Inventory? in
            try await withCancellableThread { cancellation throws(StageError) in
                try StageError.wrapping { () throws(FileError) in
                    try decoder.decode(path, window: patch.windowSize) { cancellation.isRequested }
                }
            }
        }
        guard let inventory else { throw .cancelled }
        return local.adding(inventory)
    }
}
