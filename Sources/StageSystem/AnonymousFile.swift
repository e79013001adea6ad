import CLinux
import Glibc
package import SystemPackage

/// Files without a name, which the kernel deletes when their last descriptor is closed.
package enum AnonymousFile {
    /// Makes a file in memory (memfd_create(2)).
    ///
    /// - Returns: The descriptor, which the caller closes.
    package static func makeInMemory() throws(FileError) -> FileDescriptor {
        FileDescriptor(
            rawValue: try Directory.attempt("create", at: "a file in memory") {
                stage_memory_file()
            }
        )
    }

    /// Duplicates the descriptor of a file with `FD_CLOEXEC`, so that child processes do not inherit it.
    ///
    /// - Returns: The new descriptor, which the caller closes.
    package static func duplicate(
        _ descriptor: FileDescriptor
    ) throws(FileError) -> FileDescriptor {
        let copy = try Directory.attempt("open", at: "a file without a name") {
            fcntl(descriptor.rawValue, F_DUPFD_CLOEXEC, 0)
        }
        return FileDescriptor(rawValue: copy)
    }

    /// Creates an unnamed file in a directory, readable and writable by its owner only.
    ///
    /// - Returns: The descriptor, which the caller closes.
    package static func make(in directory: FilePath) throws(FileError) -> FileDescriptor {
        let template = directory.appending("file.XXXXXX")
        var name = Array(template.string.utf8CString)
        let descriptor = try Directory.attempt("create", at: template) {
            unsafe name.withUnsafeMutableBufferPointer { buffer in
                guard let text = buffer.baseAddress else { return -1 }
                let file = unsafe stage_make_temporary_file(text)
                if file >= 0 { unsafe _ = unlink(text) }
                return file
            }
        }
        return FileDescriptor(rawValue: descriptor)
    }
}
