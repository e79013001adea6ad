public import StageModel

/// The ways to transfer the missing content of an indexed pack, and the one with the fewest bytes: a pure
/// value.
///
/// The size of the index is not included, since every way needs it, with two exceptions: before a first installation that takes
/// an archive with a `PackIndex/fileTableDelta`, ``objects`` includes the index, and ``archive`` that delta; if
/// ``precedesIndex``, all sizes include the index or a delta of it.
public struct TransferChoice: Equatable, Sendable {
    /// A way to transfer content.
    public enum Way: String, Equatable, Sendable, Codable {
        /// Ranges of bundles, and of a delta set if there is one.
        case objects
        /// The complete archive of all files.
        case archive
        /// The patch from the staged version.
        case patch
    }

    /// The bytes to transfer from objects; an upper bound if ``dependsOnIndex``.
    public var objects: ByteCount
    /// The bytes of the archive still to download; `nil` if the pack has no archive.
    public var archive: ByteCount?
    /// The bytes of the patch from the staged version still to download; `nil` if there is none.
    public var patch: ByteCount?
    /// The size of the whole patch, of which the container may have a part, with the delta of the index if ``precedesIndex``; `nil`
    /// if ``patch`` is unknown or `nil`.
    public var patchSize: ByteCount?
    /// `true` if a version of the pack is staged, so that only the index tells how many bytes of objects are
    /// missing.
    public var dependsOnIndex: Bool
    /// The size of the delta set from the staged version; `nil` if there is none or ``objects`` includes it.
    public var differences: ByteCount?
    /// `true` if the patch is taken before the index, which its content completes (`PackIndex.Patch/indexDelta`).
    ///
    /// The bytes of ``objects`` are an upper bound then.
    public var precedesIndex = false
    /// `true` if objects are missing or damaged on all servers, so that the archive replaces them, if there is one.
    public var lacksObjects = false

    /// Creates a choice between transfers of the given sizes.
    public init(
        objects: ByteCount,
        archive: ByteCount?,
        patch: ByteCount? = nil,
        dependsOnIndex: Bool = false,
        differences: ByteCount? = nil
    ) {
        self.objects = objects
        self.archive = archive
        self.patch = patch
        self.dependsOnIndex = dependsOnIndex
        self.differences = differences
    }

    /// Creates the choice of a first installation before the index is downloaded.
    ///
    /// The size of ``objects`` includes that of the index. The size of ``archive`` includes that of the index's delta from
    /// the archive's file table or, if there is none, that of the index.
    ///
    /// - Parameters:
    ///   - index: The index in the manifest.
    ///   - objects: The bytes of bundles to download.
    ///   - archive: The bytes of the archive still to download; `nil` if there is no archive.
    public init(forInstalling index: PackIndex, objects: ByteCount, archive: ByteCount?) {
        self.init(
            objects: objects + index.size,
            archive: archive.map { $0 + index.sizeBesideArchive }
        )
    }

    /// Creates the choice of an update that takes the patch before the index; `nil` if another way is to be taken.
    ///
    /// That is so if the patch has no delta of the index, `delta` is one from the index itself, the delta for the patch has more bytes
    /// than the index or its other delta, or another way has fewer bytes by the manifest. So an update transfers no more
    /// than a plan without the index has for it.
    ///
    /// - Parameters:
    ///   - delta: The delta of the index from the staged version.
    ///   - index: The index in the manifest.
    ///   - archive: The bytes of the archive still to download; `nil` if there is no archive.
    ///   - patch: The bytes of the patch still to download.
    package init?(
        forUpdatingBy delta: PackIndex.Delta,
        to index: PackIndex,
        archive: ByteCount?,
        patch: ByteCount
    ) {
        guard let whole = delta.patch, let indexDelta = whole.indexDelta else { return nil }
        let sizeOfIndex = min(delta.size, index.size)
        self.init(
            objects: index.bundleSize + sizeOfIndex,
            archive: archive.map { $0 + sizeOfIndex },
            patch: patch + indexDelta.size
        )
        patchSize = whole.size + indexDelta.size
        precedesIndex = true
        guard delta.base != index.contentDigest, indexDelta.size <= sizeOfIndex,
            byteCount <= min(objects, self.archive ?? objects)
        else { return nil }
    }

    /// The way with the fewest bytes, without objects if ``lacksObjects``; of equal ones objects, then the patch.
    public var way: Way {
        if lacksObjects, archive != nil { return .archive }
        if precedesIndex { return .patch }
        if objects == byteCount { return .objects }
        return patch == byteCount ? .patch : .archive
    }

    /// The number of bytes to transfer in the chosen way; an upper bound if ``dependsOnIndex``.
    public var byteCount: ByteCount {
        if lacksObjects, let archive { return archive }
        if precedesIndex, let patch { return patch }
        return min(objects, archive ?? objects, patch ?? objects)
    }
}

extension Planner {
    /// Returns the ways to transfer an indexed pack, from its manifest entry; `nil` for a pack without an
    /// index.
    public func transferChoice(for pack: Pack) -> TransferChoice? {
        guard let index = pack.index else { return nil }
        let base = staged[pack.id]?.contentDigest
        let delta = index.delta(from: base)
        func remaining(_ size: ByteCount, of digest: Digest) -> ByteCount {
            max(.zero, size - (downloaded[digest] ?? .zero))
        }
        let archive = pack.archive.map { remaining($0.size, of: $0.digest) }
        if base == nil, archive != nil, index.fileTableDelta != nil {
            return TransferChoice(
                forInstalling: index,
                objects: index.bundleSize,
                archive: archive
            )
        }
        return TransferChoice(
            objects: index.bundleSize,
            archive: archive,
            patch: delta?.patch.map { remaining($0.size, of: $0.digest) },
            dependsOnIndex: base != nil,
            differences: delta?.frames?.size
        )
    }
}
