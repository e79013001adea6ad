import Glibc
package import SystemPackage

extension FilePath {
    /// True if the path is that of a symbolic link (lstat(2)).
    package var isSymbolicLink: Bool {
        var status = Glibc.stat()
        return unsafe withPlatformString { unsafe lstat($0, &status) } == 0
            && status.st_mode & S_IFMT == S_IFLNK
    }

    /// The path with symbolic links resolved (realpath(3)), or `nil` if it does not exist.
    package var resolved: FilePath? {
        guard let path = unsafe withPlatformString({ unsafe realpath($0, nil) }) else { return nil }
        defer { unsafe free(path) }
        return unsafe FilePath(platformString: path)
    }
}
