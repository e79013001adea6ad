package import StageModel
import StageSystem
package import SystemPackage

/// A published manifest, and the directory of its file.
package struct PublishedManifest: Sendable {
    /// The manifest.
    package var manifest: Manifest
    /// The directory that its relative URLs are resolved against.
    package var directory: FilePath

    /// Creates a published manifest from its parts.
    package init(_ manifest: Manifest, in directory: FilePath) {
        (self.manifest, self.directory) = (manifest, directory)
    }
}

/// The indexed packs of published manifests, by the stores that have them.
struct PublishedPacks {
    /// An indexed pack that a manifest offers.
    struct Element {
        var pack: Pack
        var index: PackIndex
        /// The store that has its index, or should have it.
        var store: FilePath
    }

    /// The packs of this store, also those whose objects it lacks.
    private(set) var own: [Element] = []
    /// The packs of other stores.
    private(set) var others: [Element] = []
    /// The archives of packs without an index that have the names of archives in a store.
    private(set) var archives: [OfferedObject] = []

    /// Finds the store of each pack.
    ///
    /// A pack belongs to another store if `store` has no object that the manifest names for it, and the relative URL of its
    /// index leads to a store that has the index. If that holds for all packs, `store` is probably the wrong
    /// one, and they count as its own.
    init(of manifests: [PublishedManifest], in store: Directory) throws(FileError) {
        for published in manifests {
            for pack in published.manifest.packs {
                guard let index = pack.index else {
                    if let object = pack.archive?.offeredObject { archives.append(object) }
                    continue
                }
                var element = Element(pack: pack, index: index, store: store.path)
                if let other = Self.store(of: index, relativeTo: published.directory),
                    try !Self.isAnyObject(of: pack, in: store)
                {
                    element.store = other
                    others.append(element)
                } else {
                    own.append(element)
                }
            }
        }
        guard own.isEmpty else { return }
        for element in others {
            own.append(Element(pack: element.pack, index: element.index, store: store.path))
        }
        others = []
    }

    /// The number of versions of packs in other stores.
    var otherCount: Int { Set(others.map(\.index.digest)).count }

    private static func isAnyObject(
        of pack: Pack,
        in store: Directory
    ) throws(FileError) -> Bool {
        for object in pack.offeredObjects
        where try store.status(FilePath(object.path)) != nil {
            return true
        }
        return false
    }

    /// Returns the store that the relative URL of an index leads to; `nil` if the index is not there.
    private static func store(
        of index: PackIndex,
        relativeTo directory: FilePath
    ) -> FilePath? {
        guard URLReference(index.url).schemeName == nil, !index.url.hasPrefix("/"),
            let path = index.url.withoutQuery.percentDecoded
        else { return nil }
        let file = directory.pushing(FilePath(path))
        let folder = file.removingLastComponent()
        guard folder.lastComponent?.string == StoreObjectKind.index.folder, FileStatus.exists(file)
        else { return nil }
        let store = folder.removingLastComponent()
        return store.isEmpty ? "." : store
    }
}
