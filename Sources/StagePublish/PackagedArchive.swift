public import StageModel

/// The manifest data of an archive that was created from a recipe.
public struct PackagedArchive: Hashable, Sendable {
    /// The name of the pack.
    public var pack: PackID
    /// The condition under which the pack is downloaded.
    public var policy: DownloadPolicy
    /// The publisher's data for the application, as JSON text.
    public var userInfo: String?
    /// The archive format.
    public var format: ArchiveFormat
    /// The size of the archive.
    public var size: ByteCount
    /// The digest of the archive.
    public var digest: Digest
    /// The sum of the file sizes.
    public var installedSize: ByteCount
    /// The number of files and symbolic links.
    public var fileCount: Int

    /// Returns the pack's entry for a manifest, with the archive at `url`.
    public func pack(version: Int, url: String) -> Pack {
        var offered = Pack(
            id: pack,
            version: version,
            policy: policy,
            archive: PackArchive(url: url, format: format, size: size, digest: digest),
            installedSize: installedSize,
            fileCount: fileCount
        )
        offered.userInfo = userInfo
        return offered
    }
}
