import Glibc
package import SystemPackage

extension FilePath {
    /// The path with symbolic links resolved (realpath(3)), or `nil` if it does not exist.
    package var resolved: FilePath? {
        guard let path = unsafe withPlatformString({ unsafe realpath($0, nil) }) else { return nil }
        defer { unsafe free(path) }
        return unsafe FilePath(platformString: path)
    }

    /// The file that the path leads to if it is a symbolic link; the path as it is if it is none, or if it leads to no file.
    package var resolvedIfLink: FilePath {
        FileStatus.isSymbolicLink(self) ? resolved ?? self : self
    }
}
