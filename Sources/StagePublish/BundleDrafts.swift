import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Bundles under names that nobody asks for.
///
/// What has not been published is removed when the value goes.
struct BundleDrafts: ~Copyable {
    /// The folder of the bundles.
    let directory: Directory
    /// The bundles that are whole and on disk, in the order in which they were written.
    private(set) var bundles: [ContentIndex.Bundle] = []
    /// The names of their files, and then that of one that is not whole.
    private(set) var names: [FilePath.Component] = []

    init(directory: Directory) { self.directory = directory }

    deinit {
        // What is left has a name that nobody asks for; what was published has none of these.
        for name in names { _ = try? directory.remove(name) }
    }

    /// Creates the file of the next bundle.
    mutating func makeFile() throws(FileError) -> File {
        let name = StoreDraft.bundle.makeName()
        let file = try directory.file(creating: FilePath(name))
        names.append(name)
        return file
    }

    /// Takes note that the bundle of the file that was made last is whole and on disk.
    mutating func add(_ bundle: ContentIndex.Bundle) {
        bundles.append(bundle)
        precondition(bundles.count == names.count, "each bundle has a file")
    }

    /// Gives the bundles the names by which they are asked for, except those that are there, and waits until
    /// that is on disk.
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
