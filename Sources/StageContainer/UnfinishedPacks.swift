package import StageModel
import StageSystem
import SystemPackage

/// The content that a run which did not end left of a pack.
package struct UnfinishedContent: Equatable, Sendable {
    /// The disk space of the files.
    package var space: ByteCount
    /// The number of files and links.
    package var fileCount: Int
    /// The number of directories.
    package var directoryCount: Int

    /// Creates the value from its parts.
    package init(space: ByteCount, fileCount: Int, directoryCount: Int) {
        self.space = space
        (self.fileCount, self.directoryCount) = (fileCount, directoryCount)
    }
}

extension ContainerReader {
    /// Returns the content that runs which did not end left of indexed packs in the offered versions, and that staging these
    /// packs continues, or removes before it writes other content.
    ///
    /// Only the container's owner has permission to read them. Reads the status of each of the files.
    package func unfinishedContent(
        of manifest: Manifest
    ) throws(ContainerError) -> [PackID: UnfinishedContent] {
        try ContainerError.wrapping { () throws(FileError) in
            var found: [PackID: UnfinishedContent] = [:]
            guard let staging = try root.directory(FilePath(ContainerLayout.staging)),
                try !staging.entries().isEmpty
            else { return found }
            for pack in manifest.packs where pack.index != nil {
                // Staging the pack reports an area that cannot be read; until then the pack needs all of its space.
                guard let name = pack.id.nameOfArea(for: pack.contentDigest),
                    let area = try? staging.directory(FilePath(name)),
                    let content = try? area.contentOfTrees()
                else { continue }
                found[pack.id] = content
            }
            return found
        }
    }
}

extension Directory {
    /// Returns the content of the directories of a staging area: that of the pack, and of an archive that was being unpacked.
    ///
    /// Its disk space has none for directories, nor for the records beside them.
    fileprivate func contentOfTrees() throws(FileError) -> UnfinishedContent {
        var space = OccupiedSpace()
        for entry in try entries() where entry.kind == .directory {
            if let tree = try directory(entry.path) { space.add(try tree.occupiedSpace()) }
        }
        return UnfinishedContent(
            space: space.size - space.directories,
            fileCount: space.inodeCount - space.directoryCount,
            directoryCount: space.directoryCount
        )
    }
}
