package import StageModel
package import StageSystem
import SystemPackage

/// The disk space and the inodes of trees of files, some of which may have links elsewhere: what the trees occupy, and
/// what deleting them frees.
///
/// A file whose other links are outside of the trees stays when the trees are deleted. Blocks that the file system
/// shares between files are counted for each of them, since stat(2) does not tell.
package struct OccupiedSpace: Equatable, Sendable {
    /// The bytes that the trees occupy; a file with several links counts once.
    package private(set) var size = ByteCount.zero
    /// The part of ``size`` that directories take.
    package private(set) var directories = ByteCount.zero
    /// The bytes that deleting all of the trees frees.
    package private(set) var freed = ByteCount.zero
    /// The number of inodes of the trees; a file with several links counts once.
    package private(set) var inodeCount = 0
    /// The part of ``inodeCount`` that directories are.
    package private(set) var directoryCount = 0
    /// The number of inodes that deleting all of the trees frees.
    package private(set) var freedInodeCount = 0
    /// The bytes and inodes of directories, symbolic links, and files with a single link.
    private var unshared = FileSystemUsage.zero
    /// The files with several links, by their inode numbers.
    private var shared: [UInt64: SharedFile] = [:]

    /// A file with several links.
    private struct SharedFile: Equatable {
        var size: ByteCount
        /// The number of links in the trees.
        var links = 0
        /// The number of all links.
        var linkCount: UInt64

        /// `true` if deleting the trees deletes the file.
        var isFreed: Bool { links > 0 && UInt64(links) >= linkCount }
    }

    /// Creates the space of no tree.
    package init() {}

    /// Adds another tree of the same file system.
    package mutating func add(_ other: OccupiedSpace) {
        addUnshared(other.unshared)
        directories += other.directories
        directoryCount += other.directoryCount
        for (inode, file) in other.shared { add(file, inode: inode, links: file.links) }
    }

    /// Removes a tree that was added.
    package mutating func remove(_ other: OccupiedSpace) {
        addUnshared(FileSystemUsage.zero - other.unshared)
        directories -= other.directories
        directoryCount -= other.directoryCount
        for (inode, file) in other.shared { add(file, inode: inode, links: -file.links) }
    }

    /// Removes the files with several links that remain even if all of the other trees, of which these are a part, are
    /// deleted.
    package mutating func removeFiles(thatRemainWithout all: OccupiedSpace) {
        for (inode, file) in shared where all.shared[inode]?.isFreed != true {
            size -= file.size
            inodeCount -= 1
            shared[inode] = nil
        }
    }

    private mutating func addUnshared(_ usage: FileSystemUsage) {
        unshared = unshared + usage
        size += usage.bytes
        freed += usage.bytes
        inodeCount += usage.inodes
        freedInodeCount += usage.inodes
    }

    private mutating func add(_ file: SharedFile, inode: UInt64, links: Int) {
        let old = shared[inode]
        var new = old ?? file
        new.links = (old?.links ?? 0) + links
        if old == nil {
            size += new.size
            inodeCount += 1
        }
        if old?.isFreed == true {
            freed -= new.size
            freedInodeCount -= 1
        }
        if new.isFreed {
            freed += new.size
            freedInodeCount += 1
        }
        if new.links == 0 {
            size -= new.size
            inodeCount -= 1
        }
        shared[inode] = new.links == 0 ? nil : new
    }

    private mutating func add(_ status: FileStatus) {
        let bytes = ByteCount(status.allocatedSize)
        if status.kind == .directory {
            directories += bytes
            directoryCount += 1
        }
        guard status.kind == .file, status.linkCount > 1 else {
            return addUnshared(FileSystemUsage(bytes: bytes, inodes: 1))
        }
        let file = SharedFile(size: bytes, linkCount: status.linkCount)
        add(file, inode: status.inode, links: 1)
    }

    /// Adds what is below a directory, without the directory.
    fileprivate mutating func addContent(of directory: Directory) throws(FileError) {
        let entries: [DirectoryEntry]
        do throws(FileError) {
            entries = try directory.entries()
        } catch {
            // Another process has deleted it meanwhile.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return
        }
        for entry in entries {
            guard let status = try directory.status(entry.path) else { continue }
            add(status)
            guard status.kind == .directory else { continue }
            do throws(FileError) {
                if let below = try directory.directory(entry.path) { try addContent(of: below) }
            } catch {
                // Only the owner of a container may read unfinished content.
                guard error.errno == .permissionDenied else { throw error }
            }
        }
    }
}

extension Directory {
    /// Returns the disk space of what is below the directory, as far as this process may read it; reads the status of
    /// every file.
    package func occupiedSpace() throws(FileError) -> OccupiedSpace {
        var space = OccupiedSpace()
        try space.addContent(of: self)
        return space
    }
}

extension ContainerReader {
    /// A part of a container whose content belongs to no generation.
    package enum Part: Sendable {
        /// Incomplete downloads, and complete ones that are not unpacked, with their records.
        case downloads
        /// Single files of packs that are not staged, with their indexes.
        case singleFiles
        /// Packs that are being staged, and those that runs which did not end left.
        case unfinishedPacks

        fileprivate var name: FilePath.Component {
            switch self {
            case .downloads: ContainerLayout.downloads
            case .singleFiles: ContainerLayout.files
            case .unfinishedPacks: ContainerLayout.staging
            }
        }
    }

    /// Returns the disk space of a part of the container, without what only the container's owner has permission to read.
    package func occupiedSpace(of part: Part) throws(ContainerError) -> OccupiedSpace {
        try ContainerError.wrapping { () throws(FileError) in
            try root.directory(FilePath(part.name))?.occupiedSpace() ?? OccupiedSpace()
        }
    }

    /// Returns the disk space of a generation, with its records; reads the status of every file.
    package func occupiedSpace(
        of stored: StoredGeneration
    ) throws(ContainerError) -> OccupiedSpace {
        try ContainerError.wrapping { () throws(FileError) in
            // A generation that was deleted meanwhile occupies nothing.
            try root.directory(path(of: stored.name, stored.id))?.occupiedSpace() ?? OccupiedSpace()
        }
    }
}
