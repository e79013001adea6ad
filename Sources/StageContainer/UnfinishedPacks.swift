package import StageModel
import StageSystem
import SystemPackage

extension ContainerReader {
    /// Returns the bytes on disk of the files that runs which did not end left of indexed packs in the offered versions,
    /// and that staging these packs continues, or removes before it writes others.
    ///
    /// Only the container's owner has permission to read them. Reads the status of each of the files.
    package func unfinishedSizes(
        of manifest: Manifest
    ) throws(ContainerError) -> [PackID: ByteCount] {
        try ContainerError.wrapping { () throws(FileError) in
            var sizes: [PackID: ByteCount] = [:]
            guard let staging = try root.directory(FilePath(ContainerLayout.staging)),
                try !staging.entries().isEmpty
            else { return sizes }
            for pack in manifest.packs where pack.index != nil {
                // Staging the pack reports an area that cannot be read; until then the pack needs all of its space.
                guard let name = pack.id.nameOfArea(for: pack.contentDigest),
                    let area = try? staging.directory(FilePath(name)),
                    let size = try? area.spaceOfFilesInTrees()
                else { continue }
                sizes[pack.id] = size
            }
            return sizes
        }
    }
}

extension Directory {
    /// Returns the disk space of the files in the directories of a staging area: the content of the pack, and an archive that
    /// was being unpacked.
    ///
    /// The space that a plan compares has none for directories, nor for the records beside them.
    fileprivate func spaceOfFilesInTrees() throws(FileError) -> ByteCount {
        var space = OccupiedSpace()
        for entry in try entries() where entry.kind == .directory {
            if let tree = try directory(entry.path) { space.add(try tree.occupiedSpace()) }
        }
        return space.size - space.directories
    }
}
