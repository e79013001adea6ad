import StageContainer
import StageModel

/// The source of the content of a pack: all that ``PackWork`` does differently for archives and for indexed
/// packs.
enum ContentSource: Sendable {
    /// An archive, which is in `downloads/` and verified before the pack has a staging area.
    case archive(VerifiedArchive)
    /// An index, and what it names: bundles, which are fetched into the staging area, or an archive.
    case index(IndexSource)

    /// The result of filling a staging area.
    struct Filling: Sendable {
        /// The cost of it.
        var figures: StagingFigures
        /// The source of the digests for the listing.
        var digests: ContentListing.DigestSource
    }

    /// The URL in the manifest.
    var url: String {
        switch self {
        case .archive(let archive): archive.reference.url
        case .index(let source): source.reference.url
        }
    }

    /// Makes the staging area, or continues the one that an earlier run left of the same index.
    func makeArea(
        in container: Container,
        holding lock: PackLock
    ) throws(ContainerError) -> StagingArea {
        switch self {
        case .archive:
            try container.makeStagingArea(lock)
        case .index(let source):
            try container.makeStagingArea(lock, continuing: source.reference.contentDigest)
        }
    }

    /// Puts the content into a staging area.
    func fill(_ area: StagingArea) async throws(StageError) -> Filling {
        switch self {
        case .archive(let archive): try await archive.unpack(into: area)
        case .index(let source): try await source.fill(area)
        }
    }

    /// Returns whether a later run continues the area of a run that failed.
    ///
    /// Archives are in `downloads/` and unpacked again. The area of an index has the only copy of what was
    /// fetched, unless the index or the content of the area is wrong.
    func keepsArea(after error: StageError) -> Bool {
        switch (self, error) {
        case (.archive, _), (.index, .index), (.index, .incompleteContent): false
        case (.index, _): true
        }
    }

    /// Removes the downloads that a staged pack does not need.
    func removeDownload() throws(StageError) {
        switch self {
        case .archive(let archive): try archive.remove()
        case .index(let source): try source.removeArchive()
        }
    }

    /// Gives up the right to the download.
    func end() {
        if case .archive(let archive) = self { archive.end() }
    }
}
