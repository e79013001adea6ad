public import StageModel
public import StageSystem
import SystemPackage

extension Container {
    /// Returns the directory for single files of a pack that is not staged, known by the digest of its
    /// content; makes it if need be.
    ///
    /// Below it, `content/` has the files that are complete, each put there in one step.
    public func partialContent(of digest: Digest) throws(ContainerError) -> Directory {
        try ContainerError.wrapping { () throws(FileError) in
            let files = try root.makeDirectory(FilePath(ContainerLayout.files))
            return try files.makeDirectory(FilePath(ContainerLayout.downloadName(of: digest)))
        }
    }

    /// Removes single files of packs that `isWanted` does not name by their digest; returns of how many
    /// packs.
    ///
    /// Who has a file open goes on reading it.
    public func removePartialContent(
        isWanted: (Digest) -> Bool
    ) throws(ContainerError) -> Int {
        try ContainerError.wrapping { () throws(FileError) in
            guard let files = try root.directory(FilePath(ContainerLayout.files)) else { return 0 }
            var removed = 0
            for entry in try files.entries() {
                // Another name is none of ours.
                if let digest = try? Digest(hexadecimal: entry.name.string), isWanted(digest) {
                    continue
                }
                if try files.removeTree(entry.name) { removed += 1 }
            }
            return removed
        }
    }
}
