import StageContainer
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// The disk space and the inodes that staging a pack takes at least.
struct CreatedContent: Equatable, Sendable {
    /// The disk space of directories and files.
    var space: ByteCount
    /// The number of directories, files and links.
    var inodeCount: Int

    /// The inodes that stay free, for locks and records: without any, no command could free space.
    private static let reservedInodes = 64

    /// Creates the value from its parts.
    init(space: ByteCount, inodeCount: Int) {
        (self.space, self.inodeCount) = (space, inodeCount)
    }

    /// Counts the content of an archive; `nil` if the manifest does not state the number of directories.
    init?(ofArchiveOf pack: Pack) {
        guard let directories = pack.directoryCount else { return nil }
        self.init(
            space: pack.installedSize + ContentIndex.space(ofDirectories: directories),
            inodeCount: pack.fileCount + directories
        )
    }

    /// Counts what is created beside a staged generation, whose files get a second name.
    ///
    /// - Parameters:
    ///   - index: The index.
    ///   - directories: The number of its directories.
    ///   - base: The staged generation.
    ///   - areFilesUnpacked: `true` if the files are in the area already, and are moved.
    init(
        of index: ContentIndex,
        directories: Int,
        after base: IndexSource.Base?,
        areFilesUnpacked: Bool
    ) {
        let links = index.fileCount - index.files.reduce(0) { count, _ in count + 1 }
        self.init(
            space: ContentIndex.space(ofDirectories: directories),
            inodeCount: directories + links
        )
        guard !areFilesUnpacked else { return }
        let linked = base.flatMap { $0.content.linksTakeNoSpace ? $0.contentMap : nil }
        for (_, file) in index.files where linked?.path(of: file) == nil {
            space += ByteCount(ContentIndex.blocks(of: file))
            inodeCount += 1
        }
    }

    /// Throws if the file system has less free space, or too few free inodes.
    func check(against free: FreeSpace, in directory: FilePath) throws(StageError) {
        let available = ByteCount(free.bytes)
        guard space <= available else {
            throw .noSpace(needed: space + Planner.reserve, available: available)
        }
        guard let inodes = free.files, inodes < Int64(inodeCount + Self.reservedInodes) else {
            return
        }
        let operation = "create \(inodeCount.quantity(of: "file")) in"
        throw FileError(operation, path: directory, errno: .noSpace).stageError
    }
}

extension PackWork {
    /// Checks that the file system has room for the content of the archive, before it is downloaded, if the manifest states the
    /// number of directories.
    func checkSpaceOfArchive() async throws(StageError) {
        guard let created = CreatedContent(ofArchiveOf: pack) else { return }
        let root = container.root
        let free = try await StageError.blocking { () throws(FileError) in try root.freeSpace() }
        try created.check(against: free, in: root.path)
    }
}

extension Pack {
    /// The most disk space of the unpacked content, with that of the directories if the manifest states their number.
    var contentSpace: ByteCount {
        StoredGeneration.size(installedSize, fileCount: fileCount)
            + ContentIndex.space(ofDirectories: directoryCount ?? 0)
    }
}
