import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Bundles under temporary names, which clients do not request.
///
/// Unpublished bundles are removed when the value is released.
struct TemporaryBundles: ~Copyable {
    /// The directory of the bundles.
    let directory: Directory
    /// The complete and synced bundles, in the order in which they were written.
    private(set) var bundles: [ContentIndex.Bundle] = []
    /// The file names of the bundles, followed by that of an incomplete one.
    private(set) var names: [FilePath.Component] = []

    init(directory: Directory) { self.directory = directory }

    deinit {
        // Published bundles were renamed: only temporary files still have these names.
        for name in names { _ = try? directory.remove(name) }
    }

    /// Creates the file of the next bundle.
    mutating func makeFile() throws(FileError) -> File {
        let name = StoreObjectKind.bundle.makeName()
        let file = try directory.file(creating: FilePath(name), for: nil)
        names.append(name)
        return file
    }

    /// Records that the last created bundle is complete and synced.
    mutating func add(_ bundle: ContentIndex.Bundle) {
        bundles.append(bundle)
        precondition(bundles.count == names.count, "each bundle has a file")
    }

    /// Moves complete bundles of the same directory to the end of these.
    mutating func append(_ others: inout TemporaryBundles) {
        precondition(others.bundles.count == others.names.count, "each bundle is whole")
        bundles += others.bundles
        names += others.names
        others.bundles = []
        others.names = []
    }

    /// Renames the bundles to their digests, except those that exist already, and syncs the directory.
    mutating func publish() throws(FileError) {
        precondition(bundles.count == names.count, "each bundle is whole")
        let objects = StoreObjects(directory: directory)
        for (name, bundle) in zip(names, bundles) {
            try objects.publish(name, digest: bundle.digest)
        }
        names = []
        try directory.synchronize()
    }
}
