import StageContainer
import StageModel

/// Source of a pack's content.
///
/// It contains everything that ``PackWork`` does differently for archives and for indexed packs.
enum ContentSource: Sendable {
    /// An archive, downloaded to `downloads/` and verified before the staging area of the pack is created.
    case archive(VerifiedArchive)
    /// An index with its bundles, which are fetched into the staging area, or with an archive.
    case index(IndexSource)

    /// The result of filling a staging area.
    struct Filling: Sendable {
        /// The bytes transferred and reused.
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

    /// Creates the staging area, or resumes that of an earlier run that staged the same index.
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

    /// Writes the content into a staging area.
    func fill(_ area: StagingArea) async throws(StageError) -> Filling {
        switch self {
        case .archive(let archive): try await archive.unpack(into: area)
        case .index(let source): try await source.fill(area)
        }
    }

    /// Returns whether a later run can resume the staging area of a run that failed.
    ///
    /// An archive stays in `downloads/` and is unpacked again. The staging area of an index holds the only
    /// copy of the content received, so it is kept unless the error concerns the index or the content of the
    /// area.
    func keepsArea(after error: StageError) -> Bool {
        switch (self, error) {
        case (.archive, _), (.index, .index), (.index, .incompleteContent): false
        case (.index, _): true
        }
    }

    /// Removes the downloads that a staged pack no longer needs.
    func removeDownload() throws(StageError) {
        switch self {
        case .archive(let archive): try archive.remove()
        case .index(let source): try source.removeDownloads()
        }
    }

    /// Releases the download lock of an archive.
    func end() {
        if case .archive(let archive) = self { archive.end() }
    }
}
