public import StageModel

/// What a manifest says of an archive that was made of a recipe.
public struct PackagedArchive: Hashable, Sendable {
    /// The name of the pack.
    public var pack: PackID
    /// When the pack is fetched.
    public var policy: DownloadPolicy
    /// Whatever the publisher wants to tell the application, as JSON text.
    public var userInfo: String?
    /// How the archive is compressed.
    public var format: ArchiveFormat
    /// The size of the archive.
    public var size: ByteCount
    /// The digest of the archive.
    public var digest: Digest
    /// The sum of the sizes of its files.
    public var installedSize: ByteCount
    /// How many files and symbolic links it has.
    public var fileCount: Int

    /// The pack as a manifest offers it, at a URL.
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
