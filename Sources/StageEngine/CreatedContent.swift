import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// The disk space and the inodes that staging an indexed pack takes at least.
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

    /// Counts what is created beside a staged generation, whose files get a second name.
    ///
    /// - Parameters:
    ///   - index: The index.
    ///   - base: The staged generation.
    ///   - areFilesUnpacked: `true` if the files are in the area already, and are moved.
    init(of index: ContentIndex, after base: IndexSource.Base?, areFilesUnpacked: Bool) {
        let links = index.fileCount - index.files.reduce(0) { count, _ in count + 1 }
        // Counted once: that reads all paths of the index.
        let directories = index.directoryCount
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
        guard space <= available else { throw .noSpace(needed: space, available: available) }
        guard let inodes = free.files, inodes < Int64(inodeCount + Self.reservedInodes) else {
            return
        }
        let operation = "create \(inodeCount.quantity(of: "file")) in"
        throw FileError(operation, path: directory, errno: .noSpace).stageError
    }
}
