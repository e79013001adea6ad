public import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Returns how many bytes of each archive are in part files.
    public func downloadedSizes() throws(ContainerError) -> [Digest: ByteCount] {
        try ContainerError.wrapping { () throws(FileError) in
            var sizes: [Digest: ByteCount] = [:]
            for entry in try downloads.entries() where entry.name.string.contains(".part.") {
                guard let digest = Self.digest(ofDownload: entry.name),
                    let status = try downloads.status(FilePath(entry.name))
                else { continue }
                sizes[digest] = ByteCount(status.size)
            }
            return sizes
        }
    }

    /// The archive that a file of `downloads/` is of, or `nil` if it is none of ours.
    static func digest(ofDownload name: FilePath.Component) -> Digest? {
        // Any other name is nobody's.
        try? Digest(hexadecimal: String(name.string.prefix { $0 != "." }))
    }
}
