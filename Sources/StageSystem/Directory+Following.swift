import CLinux
import Glibc
public import SystemPackage

/// A file or a directory, opened for reading.
public enum OpenedEntry: ~Copyable {
    /// A regular file.
    case file(File)
    /// A directory.
    case directory(Directory)
}

extension Directory {
    /// Opens the file or directory at `name` below this directory, following symbolic links that stay below
    /// it.
    ///
    /// - Returns: The file or directory, or `nil` if there is none, a link leaves the directory or loops, or
    ///   it is neither a file nor a directory.
    public func entry(following name: FilePath) throws(FileError) -> OpenedEntry? {
        let descriptor: FileDescriptor
        do {
            descriptor = try open(following: name)
        } catch  where Self.absences.contains(error.errno) {
            return nil
        }
        let file = File(adopting: descriptor, path: path.pushing(name))
        switch try file.status().kind {
        case .file:
            return .file(file)
        case .directory:
            let copy = try Self.attempt("open", at: file.path) {
                stage_duplicate(file.descriptor.rawValue)
            }
            return .directory(
                Directory(adopting: FileDescriptor(rawValue: copy), path: file.path)
            )
        case .link, .other:
            return nil
        }
    }

    private func open(following name: FilePath) throws(FileError) -> FileDescriptor {
        let file = try Self.attempt("open", at: path.pushing(name)) {
            unsafe name.withPlatformString { name in
                unsafe stage_openat2(
                    descriptor.rawValue,
                    name,
                    // With `O_NONBLOCK`, opening a FIFO does not wait for a writer.
                    UInt64(O_RDONLY | O_CLOEXEC | O_NONBLOCK),
                    0,
                    UInt64(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
                )
            }
        }
        return FileDescriptor(rawValue: file)
    }

    /// Errors of openat2(2) that mean that there is nothing to open below the directory.
    private static let absences: [Errno] = [
        .noSuchFileOrDirectory, .notDirectory, .tooManySymbolicLinkLevels, .improperLink,
        .permissionDenied, .fileNameTooLong, .noSuchAddressOrDevice,
    ]
}
