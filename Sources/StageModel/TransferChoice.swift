/// The ways to transfer the missing content of an indexed pack, and the one with the fewest bytes: a pure
/// value.
///
/// The size of the index is not included, since every way needs it, unless ``includesIndex``.
public struct TransferChoice: Equatable, Sendable {
    /// A way to transfer content.
    @nonexhaustive
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
    /// `true` if each size includes the bytes of the index in that way: of the index itself or of a delta of it.
    ///
    /// That is so before an update that takes the patch first, and before a first installation if the index can be restored from the
    /// archive (`PackIndex/fileTableDelta`).
    public var includesIndex = false
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
