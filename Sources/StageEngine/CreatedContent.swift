import StageContainer
import StageIndex
import StageModel
import StageSystem

/// The disk space and the inodes that staging a pack takes at least.
struct CreatedContent: Equatable, Sendable {
    /// The disk space of directories and files.
    var space: ByteCount
    /// The number of directories, files and links.
    var inodeCount: Int

    /// Creates the value from its parts.
    init(space: ByteCount, inodeCount: Int) {
        (self.space, self.inodeCount) = (space, inodeCount)
    }

    /// Counts the content of an archive, with the directories that the manifest states.
    init(ofArchiveOf pack: Pack) {
        let directories = ContentIndex.usage(ofDirectories: pack.directoryCount ?? 0)
        self.init(
            space: pack.installedSize + directories.bytes,
            inodeCount: pack.contentInodes
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
    func check(against free: FreeSpace) throws(StageError) {
        let available = ByteCount(free.bytes)
        guard space <= available else {
            throw .noSpace(needed: space + Planner.reserve, available: available)
        }
        let needed = inodeCount + AvailableSpace.reservedInodes
        if let inodes = free.inodes, inodes < needed {
            throw .noInodes(needed: needed, available: inodes)
        }
    }
}

extension PackWork {
    /// Checks that the file system has room for the content of the archive, before it is downloaded: other processes may have
    /// filled it since the plan was made.
    func checkSpaceOfArchive() async throws(StageError) {
        let created = CreatedContent(ofArchiveOf: pack)
        let root = container.root
        let free = try await StageError.blocking { () throws(FileError) in try root.freeSpace() }
        try created.check(against: free)
    }
}

extension Pack {
    /// The most disk space of the unpacked content, with that of the directories if the manifest states their number.
    var contentSpace: ByteCount {
        StoredGeneration.size(installedSize, fileCount: fileCount)
            + ContentIndex.space(ofDirectories: directoryCount ?? 0)
    }

    /// The inodes of the unpacked content: files, links and directories.
    ///
    /// If the manifest does not state the number of directories, one counts, which is a lower bound.
    var contentInodes: Int { fileCount + (directoryCount ?? 1) }

    /// The most disk space, and the inodes, of the content of an indexed pack that is made from its archive.
    ///
    /// The directories count twice: those that the archive is unpacked to, and those that its files are moved to.
    var contentUsageByArchive: FileSystemUsage {
        FileSystemUsage(bytes: contentSpace, inodes: contentInodes)
            + ContentIndex.usage(ofDirectories: directoryCount ?? 1)
    }
}
