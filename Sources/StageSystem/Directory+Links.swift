import Glibc
public import SystemPackage

extension Directory {
    /// Returns the target of the symbolic link `name`, or `nil` if there is none or it is not a link.
    public func link(_ name: FilePath.Component) throws(FileError) -> String? {
        try unsafe link(name) { base, count in
            unsafe name.withPlatformString {
                unsafe readlinkat(descriptor.rawValue, $0, base, count)
            }
        }
    }

    /// Returns the target of the symbolic link `name`, or `nil` if there is none or it is not a link.
    ///
    /// Creates no ``SystemPackage/FilePath``, which would take longer than the system call.
    ///
    /// - Parameter name: The name of an entry of this directory.
    /// - Returns: The target, with invalid UTF-8 replaced.
    /// - Throws: ``FileError`` if the link cannot be read.
    /// - Precondition: `name` contains no slash.
    public func link(named name: String) throws(FileError) -> String? {
        precondition(!name.utf8.contains(UInt8(ascii: "/")), "a name has no slash")
        return try unsafe link(FilePath.Component(name)) { base, count in
            unsafe readlinkat(descriptor.rawValue, name, base, count)
        }
    }

    /// Returns whether a path below this directory exists and can be reached, following links.
    ///
    /// - Throws: ``FileError`` if the file system cannot tell.
    public func exists(following path: String) throws(FileError) -> Bool {
        try status(following: path) != nil
    }

    /// Returns the status of a path below this directory, following links; `nil` if it does not exist or cannot be
    /// reached.
    ///
    /// Creates no ``SystemPackage/FilePath``, which would take longer than the system call.
    ///
    /// - Throws: ``FileError`` if the file system cannot tell.
    public func status(following path: String) throws(FileError) -> FileStatus? {
        var status = stat()
        do {
            try Self.attempt("inspect", at: self.path.appending(path)) {
                unsafe fstatat(descriptor.rawValue, path, &status, 0)
            }
            return FileStatus(status)
        } catch {
            switch error.errno {
            case .noSuchFileOrDirectory, .notDirectory, .tooManySymbolicLinkLevels,
                .permissionDenied:
                return nil
            default: throw error
            }
        }
    }

    /// Returns the text that `read` writes to a buffer, or `nil` if it finds no link; errors name `name`.
    private func link(
        _ name: @autoclosure () -> FilePath.Component?,
        read: (UnsafeMutablePointer<CChar>, Int) -> Int
    ) throws(FileError) -> String? {
        do {
            return try unsafe text(of: name(), read: read)
        } catch  where error.errno == .noSuchFileOrDirectory || error.errno == .invalidArgument {
            return nil
        }
    }

    private func text(
        of name: @autoclosure () -> FilePath.Component?,
        read: (UnsafeMutablePointer<CChar>, Int) -> Int
    ) throws(FileError) -> String {
        try unsafe withUnsafeTemporaryAllocation(
            of: CChar.self,
            capacity: Int(PATH_MAX)
        ) { buffer throws(FileError) in
            guard let base = buffer.baseAddress else { return "" }
            let count = try Self.attempt(
                "read the link",
                at: path.appending([name()].compactMap(\.self))
            ) { unsafe CInt(read(base, buffer.count)) }
            return unsafe String(
                decoding: UnsafeRawBufferPointer(
                    rebasing: UnsafeRawBufferPointer(buffer)[..<Int(count)]
                ),
                as: UTF8.self
            )
        }
    }
}
