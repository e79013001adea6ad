package import StageModel
import StageSystem
import SystemPackage

extension ContainerReader {
    /// Returns the bytes on disk of the files that runs which did not end left of indexed packs in the offered versions,
    /// and that staging these packs continues.
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
                guard let name = pack.id.nameOfArea(for: pack.contentDigest) else { continue }
                let path = FilePath(name).appending(ContainerLayout.content)
                // Staging the pack reports an area that cannot be read; until then the pack needs all of its space.
                guard let space = try? staging.directory(path)?.occupiedSpace() else { continue }
                // The space that a plan compares has none for directories.
                sizes[pack.id] = space.size - space.directories
            }
            return sizes
        }
    }

    /// Returns the disk space of packs that are being staged, and of those that runs which did not end left.
    ///
    /// Leaves out what only the container's owner has permission to read.
    package func unfinishedSpace() throws(ContainerError) -> OccupiedSpace {
        try ContainerError.wrapping { () throws(FileError) in
            let staging = try root.directory(FilePath(ContainerLayout.staging))
            return try staging?.occupiedSpace() ?? OccupiedSpace()
        }
    }
}
