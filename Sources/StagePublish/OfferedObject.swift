import StageIndex
package import StageModel

/// An object of a store that a manifest names, or the index of one of its packs.
struct OfferedObject: Hashable {
    /// The path in the store.
    var path: String
    /// The size in bytes.
    var size: ByteCount
    /// The digest of all bytes.
    var digest: Digest
}

extension PackIndex {
    /// The path of the index in its store.
    package var storePath: String { OfferedObject.path(of: url, in: .index) }
}

extension Pack {
    /// The objects in the store of an indexed pack that the manifest names; none for another pack.
    ///
    /// Bundles are ``ContentIndex/offeredBundles``.
    var offeredObjects: [OfferedObject] {
        guard let index else { return [] }
        var objects = [
            OfferedObject(path: index.storePath, size: index.size, digest: index.digest)
        ]
        // An archive with another name was not packaged in a store.
        if let archive, StoreObjectName(OfferedObject.name(in: archive.url)) != nil {
            objects.append(
                OfferedObject(
                    path: OfferedObject.path(of: archive.url, in: .archive),
                    size: archive.size,
                    digest: archive.digest
                )
            )
        }
        if let delta = index.fileTableDelta {
            objects.append(
                OfferedObject(
                    path: OfferedObject.path(of: delta.url, in: .index),
                    size: delta.size,
                    digest: delta.digest
                )
            )
        }
        return objects + index.deltas.flatMap(\.offeredObjects)
    }
}

extension PackIndex.Delta {
    /// The delta, its delta set and its patch.
    fileprivate var offeredObjects: [OfferedObject] {
        var objects = [
            OfferedObject(
                path: OfferedObject.path(of: url, in: .index),
                size: size,
                digest: digest
            )
        ]
        if let frames {
            let path = "\(StoreObjectKind.deltas.folder)/\(frames.digest)"
            objects.append(
                OfferedObject(path: path, size: frames.size, digest: frames.digest)
            )
        }
        if let patch {
            objects.append(
                OfferedObject(
                    path: OfferedObject.path(of: patch.url, in: .patch),
                    size: patch.size,
                    digest: patch.digest
                )
            )
        }
        return objects
    }
}

extension ContentIndex {
    /// The bundles.
    var offeredBundles: [OfferedObject] {
        bundles.map { bundle in
            OfferedObject(
                path: "\(StoreObjectKind.bundle.folder)/\(bundle.digest)",
                size: ByteCount(bundle.size),
                digest: bundle.digest
            )
        }
    }
}

extension OfferedObject {
    /// Returns the path in the store of an object at a URL.
    fileprivate static func path(of url: String, in kind: StoreObjectKind) -> String {
        "\(kind.folder)/\(name(in: url))"
    }

    /// Returns the last path component of a URL.
    fileprivate static func name(in url: String) -> String {
        let path = url.withoutQuery
        return String(path.pathComponents.last ?? path)
    }
}
