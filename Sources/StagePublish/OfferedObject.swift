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
    /// The path of the index in its store, whatever name its URL has.
    package var storePath: String { "\(StoreObjectKind.index.folder)/\(digest)" }
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
        if let object = archive?.offeredObject { objects.append(object) }
        if let delta = index.fileTableDelta { objects.append(delta.offeredObject) }
        return objects + index.deltas.flatMap(\.offeredObjects)
    }
}

extension PackArchive {
    /// The archive as an object of a store; `nil` for one with another name, which was not packaged in a store.
    var offeredObject: OfferedObject? {
        guard StoreObjectName(OfferedObject.name(in: url)) != nil else { return nil }
        return OfferedObject(
            path: OfferedObject.path(of: url, in: .archive),
            size: size,
            digest: digest
        )
    }
}

extension PackIndex.CompanionDelta {
    /// The delta as an object of a store.
    fileprivate var offeredObject: OfferedObject {
        OfferedObject(
            path: OfferedObject.path(of: url, in: .index),
            size: size,
            digest: digest
        )
    }
}

extension PackIndex.Delta {
    /// The delta, its delta set, its patch, and the delta for clients of the patch.
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
            if let delta = patch.indexDelta { objects.append(delta.offeredObject) }
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
