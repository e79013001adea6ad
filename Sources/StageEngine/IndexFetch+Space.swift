package import StageContainer
import StageIndex
package import StageModel
import StageSystem
import SystemPackage

extension Stager {
    /// Returns the most disk space and inodes that staging indexed packs takes, by their indexes, which it fetches.
    ///
    /// Writes nothing to disk. Omits packs whose indexes cannot be fetched.
    ///
    /// - Parameters:
    ///   - packs: The packs.
    ///   - manifest: The manifest that offers them.
    ///   - reader: The container; `nil` if it does not exist.
    /// - Returns: The space by pack.
    package func spaceByIndex(
        of packs: [Pack],
        from manifest: AcceptedManifest,
        in reader: ContainerReader?
    ) async -> [PackID: SpaceByIndex] {
        await withIndexes(of: packs, from: manifest, isTriedOnce: true) { fetch -> SpaceByIndex? in
            // If the fetch fails, the bound of the manifest stays in effect.
            try? await fetch.space(in: reader)
        }
    }
}

/// The most disk space and inodes that staging an indexed pack takes, by its index.
package struct SpaceByIndex: Equatable, Sendable {
    /// The space and the inodes of everything that is created, without the inodes of the container's records.
    package var total: FileSystemUsage
    /// The number of directories, a part of ``total`` that a manifest need not state.
    package var directoryCount: Int

    /// Creates the space from its parts.
    package init(total: FileSystemUsage, directoryCount: Int) {
        (self.total, self.directoryCount) = (total, directoryCount)
    }

    /// The disk space of the directories.
    var spaceOfDirectories: ByteCount { ContentIndex.space(ofDirectories: directoryCount) }
}

extension IndexFetch {
    /// Returns the most disk space and inodes that staging the pack takes, by its index.
    fileprivate func space(in reader: ContainerReader?) async throws(StageError) -> SpaceByIndex {
        let id = fetching.pack.id
        let lease = try await StageError.blocking { () throws(ContainerError) -> Lease? in
            guard let reader else { return nil }
            return try reader.lease(id, marksUse: false)
        }
        let base = try await StageError.blocking { () throws(FileError) in
            try IndexSource.Base(lease)
        }
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let verified = try await index(in: nil, base: base, countingIn: &figures)
        let indexSize = reference.contentSize
        return try await StageError.blocking { () throws(FileError) in
            let directories = verified.directoryCount
            var total = try verified.content.usageOnDisk(after: base, directories: directories)
            total.bytes += indexSize
            return SpaceByIndex(total: total, directoryCount: directories)
        }
    }
}

extension ContentIndex {
    /// A block of common file systems.
    private static let block: Int64 = 4096
    /// The maximum size of an inode on disk, with the short symbolic link that it may hold.
    private static let inode: Int64 = 512
    /// The maximum size of a directory entry and a line of the listing together, without the path.
    private static let entry: Int64 = 256
    /// The length from which the target of a symbolic link takes a block.
    private static let longTarget = 60

    /// Returns the disk space of a number of directories.
    static func space(ofDirectories count: Int) -> ByteCount { ByteCount(Int64(count) * block) }

    /// Returns the disk space and the inodes of a number of directories.
    static func usage(ofDirectories count: Int) -> FileSystemUsage {
        FileSystemUsage(bytes: space(ofDirectories: count), inodes: count)
    }

    /// The disk space of the content of a file, in whole blocks.
    static func blocks(of file: File) -> Int64 { (file.size + block - 1) / block * block }

    /// Returns the most disk space and inodes of a generation beside the staged one, with which it shares files by hard links.
    ///
    /// - Parameters:
    ///   - base: The staged generation.
    ///   - directories: The number of directories, without that of the pack itself.
    /// - Returns: The disk space and inodes, with those of the directories.
    /// - Throws: The error in reading the staged generation.
    fileprivate func usageOnDisk(
        after base: IndexSource.Base?,
        directories: Int
    ) throws(FileError) -> FileSystemUsage {
        let linked = try filesToLink(to: base)
        var size = Self.space(ofDirectories: directories + 1).rawValue
        var inodes = directories
        for position in entries.indices {
            size += Int64(entries.pathBytes(at: position).count) + Self.entry
            switch entries.kind(at: position) {
            case .directory: break
            case .link(let target):
                let isLong = target.text.utf8.count >= Self.longTarget
                size += Self.inode + (isLong ? Self.block : 0)
                inodes += 1
            case .file(let file):
                guard !linked.contains(position) else { continue }
                size += Self.inode + Self.blocks(of: file)
                inodes += 1
            }
        }
        return FileSystemUsage(bytes: ByteCount(size), inodes: inodes)
    }

    /// Returns the positions of the files that hard links to files of the staged generation make.
    ///
    /// A file with other permission bits is copied, and so is one that has nearly as many links as file systems allow.
    private func filesToLink(to base: IndexSource.Base?) throws(FileError) -> Set<Int> {
        guard let base, base.content.linksTakeNoSpace else { return [] }
        var linked: Set<Int> = []
        var cursor = DirectoryCursor(base.content)
        for (position, file) in files {
            guard let path = base.contentMap.path(of: file),
                let location = try cursor.location(of: path),
                let status = try location.directory.status(location.name),
                status.kind == .file, status.size == file.size,
                status.mode == UInt32(file.mode.rawValue), status.linkCount < 16_384
            else { continue }
            linked.insert(position)
        }
        return linked
    }
}
