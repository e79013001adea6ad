public import StageModel
import StageSystem
import SystemPackage

extension ContainerReader {
    /// Returns the number of downloaded bytes of each archive or patch; only the container's owner has
    /// permission to read them.
    public func downloadedSizes() throws(ContainerError) -> [Digest: ByteCount] {
        try ContainerError.wrapping { () throws(FileError) in
            try root.directory(FilePath(ContainerLayout.downloads))?.sizesOfPartFiles() ?? [:]
        }
    }
}

extension Directory {
    /// Returns the sizes of the partial files, by the digest of their content.
    fileprivate func sizesOfPartFiles() throws(FileError) -> [Digest: ByteCount] {
        var sizes: [Digest: ByteCount] = [:]
        for entry in try entries() where entry.path.string.contains(".part.") {
            // Ignores other names.
            guard
                let digest = try? Digest(
                    hexadecimal: String(entry.path.string.prefix { $0 != "." })
                ),
                let status = try status(entry.path)
            else { continue }
            sizes[digest] = ByteCount(status.size)
        }
        return sizes
    }
}
