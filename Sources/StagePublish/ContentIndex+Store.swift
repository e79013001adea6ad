import StageDigest
package import StageIndex
import StageModel
package import StageSystem
import SystemPackage

extension ContentIndex {
    /// Returns the digests of the bundles that a store lacks, in the order of the index.
    func missingBundles(in store: Directory) throws(FileError) -> [Digest] {
        guard let folder = try store.directory(FilePath(StoreObjectKind.bundle.folder)) else {
            return bundles.map(\.digest)
        }
        var missing: [Digest] = []
        for bundle in bundles
        where try folder.status(FilePath("\(bundle.digest)"))?.kind != .file {
            missing.append(bundle.digest)
        }
        return missing
    }

    /// Returns the positions of the bundles that are in a store with other bytes than their digests say.
    ///
    /// Reads all bundles that are in the store, until the task is cancelled. One that cannot be read counts as damaged.
    ///
    /// - Parameters:
    ///   - store: The store.
    ///   - width: The number of processors to use.
    /// - Returns: The positions, without those of missing bundles.
    /// - Throws: ``FileError`` if the directory of the bundles cannot be opened.
    package func damagedBundles(
        in store: Directory,
        width: Int
    ) async throws(FileError) -> Set<Int> {
        guard let folder = try store.directory(FilePath(StoreObjectKind.bundle.folder)) else {
            return []
        }
        var damaged: Set<Int> = []
        var next = 0
        while next < bundles.count, !Task.isCancelled {
            let batch = Array(bundles.indices[next..<min(next + width, bundles.count)])
            let isDamaged = await mapInParallel(batch, width: width) { positions in
                positions.map { bundles[$0].isDamaged(in: folder) }
            }
            for (position, found) in zip(batch, isDamaged) where found { damaged.insert(position) }
            next += batch.count
        }
        return damaged
    }
}

extension ContentIndex.Bundle {
    /// Returns whether a directory has the bundle with other bytes, or it cannot be read.
    fileprivate func isDamaged(in folder: Directory) -> Bool {
        do throws(FileError) {
            guard let file = try folder.file(reading: FilePath("\(digest)")) else { return false }
            guard try file.status().size == size else { return true }
            return try Digest(of: file) != digest
        } catch {
            return true
        }
    }
}
