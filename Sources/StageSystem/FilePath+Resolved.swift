import Glibc
public import SystemPackage

extension FilePath {
    /// The path without symbolic links (realpath(3)), or `nil` if there is nothing at it.
    public var resolved: FilePath? {
        guard let path = unsafe withPlatformString({ unsafe realpath($0, nil) }) else { return nil }
        defer { unsafe free(path) }
        return unsafe FilePath(platformString: path)
    }
}
