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

    /// Downloads the patch unless it was taken before the index, writes the missing content that it restores, removes it, and returns the updated local
    /// content.
    ///
    /// A bad patch or a failing server is not an error: the content concerned is fetched in another way.
    func take(
        _ patch: UsablePatch,
        in run: Run,
        reusing local: ReusableContent,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> ReusableContent {
        var fetched = run.earlyPatch?.download
        if fetched == nil {
            fetched = try await fetch(patch.reference, countingIn: &figures)
        }
        guard let base = run.base, let download = fetched else { return local }
        defer { download.end() }
        let decoder = PatchDecoder(patch: patch, base: base)
        let path = download.path
        do throws(StageError) {
            let result = try await decoding { cancellation throws(FileError) in
                try decoder.decode(path, into: run.tree, reusing: local) {
                    cancellation.isRequested
                }
            }
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

    /// Downloads a patch; returns `nil` if it cannot be downloaded: then the content is fetched in another way.
    ///
    /// The caller ends the download.
    func fetch(
        _ patch: PackIndex.Patch,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> VerifiedDownload? {
        do throws(StageError) {
            let download = try await VerifiedDownload.fetch(
                patch.digest,
                size: patch.size,
                from: patch.url,
                for: work
            )
            figures.add(download.figures)
            return download
        } catch {
            // Objects may be on another server, or the patch alone unreachable.
            guard error.isOfSource else { throw error }
            work.fetching.log(error, as: "the patch of an indexed pack cannot be used")
            return nil
        }
    }

    /// Runs a decoder of a patch, one at a time: it keeps a part of both versions in memory.
    ///
    /// - Parameter body: Returns `nil` if cancelled.
    /// - Returns: The result.
    /// - Throws: The error of `body`; ``StageError/cancelled``.
    func decoding<Value: Sendable>(
        _ body: @escaping @Sendable (_ cancellation: Cancellation) throws(FileError) -> Value?
    ) async throws(StageError) -> Value {
        let value = try await work.stager.patching.run {
            () async throws(StageError) -> Value? in
            try await withCancellableThread { cancellation throws(StageError) in
                try StageError.wrapping { () throws(FileError) in try body(cancellation) }
            }
        }
        guard let value else { throw .cancelled }
        return value
    }

    func log(_ fault: String, of patch: PackIndex.Patch) {
        work.stager.logger.warning(
            "a patch did not bring all of its content",
            metadata: [
                "pack.id": "\(work.pack.id)", "url": "\(patch.url.forDisplay())",
                "reason": "\(fault)",
            ]
        )
    }
}
