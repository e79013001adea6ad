import Logging
import StageContainer
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension IndexFetch {
    /// Returns the patch from a staged generation; `nil` if the manifest names none.
    func patch(from base: IndexSource.Base?) -> PackIndex.Patch? {
        guard let digest = base?.contentMap.indexDigest else { return nil }
        return reference.deltas.first { $0.base == digest }?.patch
    }
}

extension IndexSource {
    /// Returns the bytes of the patch still to download; `nil` if there is no patch, or not enough space for
    /// it and its content.
    func remainingPatch(in run: Run) async throws(StageError) -> ByteCount? {
        guard let patch = indexFetch.patch(from: run.base) else { return nil }
        let container = work.container
        let held = try await StageError.blocking { () throws(ContainerError) in
            try container.reader.downloadedSizes()[patch.digest] ?? .zero
        }
        let free = try await StageError.blocking { () throws(FileError) in
            try run.area.directory.freeSpace()
        }
        let remaining = max(.zero, patch.size - held)
        let isRoom = remaining + patch.windowSize + Planner.reserve <= ByteCount(free.bytes)
        return isRoom ? remaining : nil
    }

    /// Downloads the patch, writes the missing content that it restores, and returns the updated local content.
    ///
    /// A bad patch or a failing server is not an error: the content concerned is fetched in another way.
    func takePatch(
        in run: Run,
        reusing local: ReusableContent,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> ReusableContent {
        guard let patch = indexFetch.patch(from: run.base), let base = run.base else {
            return local
        }
        let lock = try await work.downloadLock(patch.digest)
        defer { lock.end() }
        let part: PartialFile
        do throws(StageError) {
            let (file, receipt) = try await work.download(
                patch.digest,
                size: patch.size,
                from: work.mirrors(of: patch.url),
                reportsBytes: true
            )
            part = file
            figures.transferred = figures.transferred + receipt.bytesReceived
            figures.reused = figures.reused + receipt.bytesReused
            figures.source = receipt.url
        } catch {
            guard error.isOfArchive else { throw error }
            work.stager.logger.warning(
                "a patch is of no use",
                metadata: ["pack.id": "\(work.pack.id)", "error": "\(error)"]
            )
            return local
        }
        work.report(.verified)
        let decoder = PatchDecoder(tree: run.tree, base: base, local: local)
        let path = part.path
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
