/// The container format of a pack's content for download.
@nonexhaustive
public enum ArchiveFormat: String, Hashable, Sendable, Codable, CaseIterable {
    /// A tar archive, not compressed.
    case tar
    /// A tar archive compressed with gzip.
    case tarGzip = "tar.gz"
    /// A tar archive compressed with xz.
    case tarXZ = "tar.xz"
    /// A tar archive compressed with Zstandard.
    case tarZstandard = "tar.zst"
    /// A tar archive compressed with bzip2.
    case tarBzip2 = "tar.bz2"
    /// A tar archive compressed with LZ4.
    case tarLZ4 = "tar.lz4"
    /// A zip archive.
    case zip
    /// A single file without a container.
    case file
}
