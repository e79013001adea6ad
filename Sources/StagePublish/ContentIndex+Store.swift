import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension ContentIndex {
    /// Returns the digests of the bundles that a store lacks, or has with another size, in the order of the index.
    func missingBundles(in store: Directory) throws(FileError) -> [Digest] {
        let folder = try store.directory(FilePath(StoreObjectKind.bundle.folder))
        var missing: [Digest] = []
        for bundle in bundles
        where try folder?.status(FilePath("\(bundle.digest)"))?.size != bundle.size {
            missing.append(bundle.digest)
        }
        return missing
    }
}
