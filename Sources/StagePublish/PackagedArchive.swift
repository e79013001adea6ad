package import StageModel

/// The manifest data of an archive that was created from a recipe.
package struct PackagedArchive: Hashable, Sendable {
    /// The name of the pack.
    package var pack: PackID
    /// The condition under which the pack is downloaded.
    package var policy: DownloadPolicy
    /// The publisher's data for the application, as JSON text.
    package var userInfo: String?
    /// The archive format.
    package var format: ArchiveFormat
    /// The size of the archive.
    package var size: ByteCount
    /// The digest of the archive.
    package var digest: Digest
    /// The sum of the file sizes.
    package var installedSize: ByteCount
    /// The number of files and symbolic links.
    package var fileCount: Int
    /// The number of directories, including implied parents.
    package var directoryCount: Int

    /// Returns the pack's entry for a manifest, with the archive at `url`.
    package func pack(version: Int, url: String) -> Pack {
        var offered = Pack(
            id: pack,
            version: version,
            policy: policy,
            archive: PackArchive(url: url, format: format, size: size, digest: digest),
            installedSize: installedSize,
            fileCount: fileCount
        )
        offered.directoryCount = directoryCount
        offered.userInfo = userInfo
        return offered
    }
}
