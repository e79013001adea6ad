import CLinux
import Glibc
public import SystemPackage

extension Directory {
    /// Returns whether `isIncluded` holds for the file `name` in one of the subdirectories of the directory
    /// at `path`.
    ///
    /// Skips symbolic links and everything below them. With one subdirectory it takes nine system calls, and
    /// creates no ``SystemPackage/FilePath``, which would take longer than the calls.
    ///
    /// - Parameters:
    ///   - name: The name of the file in each subdirectory; subdirectories without it are skipped.
    ///   - path: The path below this directory, without empty components; a missing directory has no
    ///     subdirectories.
    ///   - isIncluded: Called with the status of each file until it returns `true`.
    /// - Returns: Whether `isIncluded` has returned `true`.
    /// - Throws: ``FileError`` if the status of a directory or a file cannot be read.
    public func contains(
        file name: FilePath.Component,
        inDirectoriesOf path: String,
        where isIncluded: (FileStatus) -> Bool
    ) throws(FileError) -> Bool {
        guard let listed = try openBeneath(descriptor, name: path, flags: O_RDONLY | O_DIRECTORY)
        else {
            return false
        }
        guard let stream = unsafe fdopendir(listed.rawValue) else {
            let reason = Errno(rawValue: errno)
            // The error to report is the one of fdopendir(3).
            try? listed.close()
            throw FileError("read", path: self.path.appending(path), errno: reason)
        }
        defer { unsafe _ = closedir(stream) }
        while true {
            errno = 0
            guard let entry = unsafe readdir(stream) else {
                guard errno != 0 else { return false }
                throw FileError(
                    "read",
                    path: self.path.appending(path),
                    errno: Errno(rawValue: errno)
                )
            }
            let text = unsafe withUnsafePointer(to: &entry.pointee.d_name) { bytes in
                unsafe bytes.withMemoryRebound(to: CChar.self, capacity: Int(NAME_MAX) + 1) {
                    unsafe String(cString: $0)
                }
            }
            guard text != ".", text != "..",
                let file = try openBeneath(listed, name: "\(text)/\(name.string)", flags: O_PATH)
            else { continue }
            // Closing loses no data: it was not opened for writing.
            defer { try? file.close() }
            guard let status = FileStatus(of: file) else {
                throw FileError(
                    "inspect",
                    path: self.path.appending(path),
                    errno: Errno(rawValue: errno)
                )
            }
            if status.kind == .file, isIncluded(status) { return true }
        }
    }

    /// Opens `name` below `directory`; returns `nil` if it does not exist, or a component is a link or not a
    /// directory.
    private func openBeneath(
        _ directory: FileDescriptor,
        name: String,
        flags: CInt
    ) throws(FileError) -> FileDescriptor? {
        do {
            let file = try Self.attempt("open", at: path.appending(name)) {
                unsafe stage_openat2(
                    directory.rawValue,
                    name,
                    UInt64(flags | O_CLOEXEC | O_NOFOLLOW),
                    0,
                    UInt64(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
                )
            }
            return FileDescriptor(rawValue: file)
        } catch
            where error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory
            || error.errno == .tooManySymbolicLinkLevels
        {
            return nil
        }
    }
}
