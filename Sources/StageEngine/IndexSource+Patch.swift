import Logging
import StageModel
import StageSystem

extension IndexSource {
    /// Returns the patch from a staged generation; `nil` if the manifest names none.
    func patch(from base: Base?) -> PackIndex.Patch? {
        reference.delta(from: base?.contentMap.indexDigest)?.patch
    }

    /// Returns the bytes of the patch still to download; `nil` if there is not enough space for it and for the files
    /// that it writes.
    func remaining(
        _ patch: UsablePatch?,
        in run: Run,
        reusing local: ReusableContent
    ) async throws(StageError) -> ByteCount? {
        guard let patch else { return nil }
        let files = run.tree.index.usageOnDisk { position, _ in !local.expected.done[position] }
        return try await remaining(
            patch.reference.size,
            of: patch.reference.digest,
            with: files,
            in: run.area
        )
    }

    /// Downloads the patch, writes the missing content that it restores, removes it, and returns the updated local
    /// content.
    ///
    /// A bad patch or a failing server is not an error: the content concerned is fetched in another way.
    func take(
        _ patch: UsablePatch,
        in run: Run,
        reusing local: ReusableContent,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> ReusableContent {
        guard let base = run.base else { return local }
        let download: VerifiedDownload
        do throws(StageError) {
            download = try await .fetch(
                patch.reference.digest,
                size: patch.reference.size,
                from: patch.reference.url,
                for: work
            )
        } catch {
            // Objects may be on another server, or the patch alone unreachable.
            guard error.isOfSource else { throw error }
            work.fetching.log(error, as: "the patch of an indexed pack cannot be used")
            return local
        }
        defer { download.end() }
        figures.add(download.figures)
        let decoder = PatchDecoder(patch: patch, tree: run.tree, base: base, local: local)
        let path = download.path
        do throws(StageError) {
            // The decoder keeps a part of both versions in memory.
            let result = try await work.stager.patching.run {
                () async throws(StageError) -> PatchDecoder.Result? in
                try await withCancellableThread { cancellation throws(StageError) in
                    try StageError.wrapping { () throws(FileError) in
                        try decoder.decode(path) { cancellation.isRequested }
                    }
                }
            }
            guard let result else { throw .cancelled }
            if let fault = result.fault { log(fault, of: patch.reference) }
            // Frees the space for the content that is still missing.
            try download.remove()
            return local.adding(result.inventory)
        } catch {
            guard error.isOutOfSpace else { throw error }
            work.fetching.log(error, as: "the patch of an indexed pack cannot be used")
            try download.remove()
            return local
        }
    }

    private func log(_ fault: String, of patch: PackIndex.Patch) {
        work.stager.logger.warning(
            "a patch did not bring all of its content",
            metadata: [
                "pack.id": "\(work.pack.id)", "url": "\(patch.url.forDisplay())",
                "reason": "\(fault)",
            ]
        )
    }
}
