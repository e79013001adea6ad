/// An object of a pack that a manifest names.
package struct PackObject: Equatable, Sendable {
    /// The path of the member that names it, in the pack.
    package var member: String
    /// The URL, absolute or relative to each mirror; `nil` for a delta set, which lies beside the index.
    package var url: String?
    /// The exact size for download, in bytes.
    package var size: ByteCount
    /// Digests; a URL that contains one of them always has the same content.
    ///
    /// The first one is the digest of the object.
    package var digests: [Digest]

    fileprivate init(_ member: String, url: String?, size: ByteCount, digests: Digest...) {
        self.member = member
        self.url = url
        self.size = size
        self.digests = digests
    }
}

extension Pack {
    /// The objects that the manifest names: archive, index, and deltas with their patches and delta sets.
    ///
    /// Only the index names bundles.
    package var objects: [PackObject] {
        let archive = self.archive.map {
            PackObject("archive", url: $0.url, size: $0.size, digests: $0.digest)
        }
        guard let index else { return [archive].compactMap(\.self) }
        let table = index.fileTableDelta.map {
            PackObject("index.fileTableDelta", url: $0.url, size: $0.size, digests: $0.digest)
        }
        var objects = [
            archive,
            PackObject("index", url: index.url, size: index.size, digests: index.digest),
            table,
        ]
        for (position, delta) in index.deltas.enumerated() {
            let member = "index.deltas[\(position)]"
            objects += [
                PackObject(
                    member,
                    url: delta.url,
                    size: delta.size,
                    digests: delta.digest,
                    index.contentDigest
                ),
                delta.patch.map {
                    PackObject("\(member).patch", url: $0.url, size: $0.size, digests: $0.digest)
                },
                delta.patch?.indexDelta.map {
                    PackObject(
                        "\(member).patch.indexDelta",
                        url: $0.url,
                        size: $0.size,
                        digests: $0.digest
                    )
                },
                delta.frames.map {
                    PackObject("\(member).frames", url: nil, size: $0.size, digests: $0.digest)
                },
            ]
        }
        return objects.compactMap(\.self)
    }
}
