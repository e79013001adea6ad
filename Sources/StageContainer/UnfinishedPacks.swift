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
                guard let name = pack.id.nameOfArea(for: pack.contentDigest),
                    let area = try staging.directory(FilePath(name)),
                    let space = try area.directory(FilePath(ContainerLayout.content))?.occupiedSpace()
                else { continue }
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
            var space = OccupiedSpace()
            guard let staging = try root.directory(FilePath(ContainerLayout.staging)) else {
                return space
            }
            for entry in try staging.entries() where entry.kind == .directory {
                do throws(FileError) {
                    if let area = try staging.directory(entry.path) {
                        space.add(try area.occupiedSpace())
                    }
                } catch {
                    guard error.errno == .permissionDenied else { throw error }
                }
            }
            return space
        }
    }
}
