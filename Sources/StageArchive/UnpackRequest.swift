public import StageModel
public import StageSystem
public import SystemPackage

/// One archive to unpack, where to, and how much it may be.
///
/// The archive is taken for verified: its digest was compared before. The request does not own the
/// archive's descriptor; it stays open until the request is done. It is read by position, so it may be
/// shared, and not moved.
public struct UnpackRequest: Sendable {
    /// The archive, a regular file open for reading.
    public var archive: FileDescriptor
    /// The directory that the content goes to: empty, and nobody else's.
    public var destination: Directory
    /// How the content is wrapped.
    public var format: ArchiveFormat
    /// The name that the content of a ``ArchiveFormat/file`` gets; other formats bring their names.
    public var fileName: String?
    /// What the archive may expand to.
    public var limits: UnpackLimits

    /// Creates a request from its parts.
    public init(
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

/// What an archive may expand to, not one entry or byte more.
public struct UnpackLimits: Hashable, Sendable, Codable {
    /// How many files and links; a hard link counts as the file it becomes.
    public var entries: Int
    /// The sum of the sizes of the files.
    public var bytes: ByteCount
    /// The most bytes of content that a decoder keeps in memory.
    public var window: ByteCount

    /// Creates limits from the number of files and links, the sum of the sizes, and what a decoder may keep.
    public init(
        entries: Int,
        bytes: ByteCount,
        window: ByteCount = ManifestLimits.windowSize
    ) {
        self.entries = entries
        self.bytes = bytes
        self.window = window
    }

    /// The number of directories, named or implied.
    public var directories: Int { ManifestLimits.directories(fileCount: entries) }
}

/// What an archive held: exact counts of what was made.
public struct UnpackReport: Hashable, Sendable, Codable {
    /// How many regular files, copies that stand for hard links included.
    public var files: Int
    /// How many directories, those included that only the paths of other entries name.
    public var directories: Int
    /// How many symbolic links.
    public var links: Int
    /// The sum of the sizes of the files.
    public var bytes: ByteCount
    /// What the unpacking thread was confined to.
    public var confinement: Confinement

    /// Creates a report from its counts.
    public init(
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
