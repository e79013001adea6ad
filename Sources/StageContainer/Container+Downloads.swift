public import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Returns how many bytes of each archive are in part files.
    public func downloadedSizes() throws(ContainerError) -> [Digest: ByteCount] {
        try ContainerError.wrapping { () throws(FileError) in try downloads.sizesOfPartFiles() }
    }
}

extension ContainerReader {
    /// Returns how many bytes of each archive are in part files; only the container's owner may look.
    public func downloadedSizes() throws(ContainerError) -> [Digest: ByteCount] {
        try ContainerError.wrapping { () throws(FileError) in
            try root.directory(FilePath(ContainerLayout.downloads))?.sizesOfPartFiles() ?? [:]
        }
    }
}

extension Directory {
    /// The sizes of the part files of archives, by the digests of these.
    fileprivate func sizesOfPartFiles() throws(FileError) -> [Digest: ByteCount] {
        var sizes: [Digest: ByteCount] = [:]
        for entry in try entries() where entry.name.string.contains(".part.") {
            // Any other name is nobody's.
            guard
                let digest = try? Digest(
                    hexadecimal: String(entry.name.string.prefix { $0 != "." })
                ),
                let status = try status(FilePath(entry.name))
            else { continue }
            sizes[digest] = ByteCount(status.size)
        }
        return sizes
    }
}
