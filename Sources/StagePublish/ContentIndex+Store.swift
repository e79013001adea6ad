import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension ContentIndex {
    /// Returns the digests of the bundles that a store lacks, or has with another size, in the order of the index.
    func missingBundles(in store: Directory) throws(FileError) -> [Digest] {
        guard let folder = try store.directory(FilePath(StoreObjectKind.bundle.folder)) else {
            return bundles.map(\.digest)
        }
        let frames = StoredFrames(index: self, bundles: folder)
        var missing: [Digest] = []
        for bundle in bundles.indices where try !frames.hasBundle(bundle) {
            missing.append(bundles[bundle].digest)
        }
        return missing
    }
}
