package import StageModel
package import StageSystem
package import SystemPackage

/// An archive to unpack, its destination, and limits.
///
/// The archive must be verified: its digest was compared before. The request does not own the archive's
/// descriptor, which must stay open until the request has ended. The archive is read at explicit offsets, so
/// the descriptor may be shared.
package struct UnpackRequest: Sendable {
    /// The archive, a regular file open for reading.
    package var archive: FileDescriptor
    /// The destination directory: empty, and not used by other code.
    package var destination: Directory
    /// The archive format.
    package var format: ArchiveFormat
    /// The file name for the format ``ArchiveFormat/file``; other formats contain names.
    package var fileName: String?
    /// The limits of the unpacked content.
    package var limits: UnpackLimits

    /// Creates a request from its parts.
    package init(
        archive: FileDescriptor,
        destination: Directory,
        format: ArchiveFormat,
        fileName: String? = nil,
        limits: UnpackLimits
    ) {
        self.archive = archive
        self.destination = destination
        self.format = format
        self.fileName = fileName
        self.limits = limits
    }
}

/// Limits of the unpacked content; the first entry or byte beyond them is an error.
package struct UnpackLimits: Hashable, Sendable, Codable {
    /// The number of files and links; a hard link counts as the file that it becomes.
    package var entries: Int
    /// The sum of the file sizes.
    package var bytes: ByteCount
    /// The largest decoder window in bytes.
    package var window: ByteCount
    /// The number of directories that the manifest states; `nil` if it states none.
    package var statedDirectories: Int?

    /// Creates limits.
    ///
    /// - Parameters:
    ///   - entries: The number of files and links.
    ///   - bytes: The sum of the file sizes.
    ///   - window: The largest decoder window in bytes.
    ///   - statedDirectories: The number of directories that the manifest states.
    package init(
        entries: Int,
        bytes: ByteCount,
        window: ByteCount = ManifestLimits.windowSize,
        statedDirectories: Int? = nil
    ) {
        self.entries = entries
        self.bytes = bytes
        self.window = window
        self.statedDirectories = statedDirectories
    }

    /// The number of entries that are directories; an archive may repeat them, and have one for the pack itself.
    package var directoryEntries: Int { ManifestLimits.directories(fileCount: entries) }
    /// The number of directories, including implied parents.
    package var directories: Int { min(statedDirectories ?? .max, directoryEntries) }
}

/// Exact totals of an unpacked archive.
package struct UnpackReport: Hashable, Sendable, Codable {
    /// The number of regular files, including copies made for hard links.
    package var files: Int
    /// The number of directories, including implied parents.
    package var directories: Int
    /// The number of symbolic links.
    package var links: Int
    /// The sum of the file sizes.
    package var bytes: ByteCount
    /// The confinement of the decoder.
    package var confinement: Confinement

    /// Creates a report from its totals.
    package init(
        files: Int,
        directories: Int,
        links: Int,
        bytes: ByteCount,
        confinement: Confinement = .none
    ) {
        self.files = files
        self.directories = directories
        self.links = links
        self.bytes = bytes
        self.confinement = confinement
    }
}
