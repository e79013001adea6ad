import Glibc
public import SystemPackage

extension Directory {
    /// Returns the target of the symbolic link `name`, with invalid UTF-8 replaced, or `nil` if there is none or it is not
    /// a link.
    public func link(_ name: FilePath.Component) throws(FileError) -> String? {
        try unsafe link(
            name,
            read: { base, count in
                unsafe name.withPlatformString {
                    unsafe readlinkat(descriptor.rawValue, $0, base, count)
                }
            },
            decode: { unsafe String(decoding: $0, as: UTF8.self) }
        )
    }

    /// Returns the bytes of the target of the symbolic link `name`, or `nil` if there is none or it is not a link.
    package func linkBytes(_ name: FilePath.Component) throws(FileError) -> [UInt8]? {
        try unsafe link(
            name,
            read: { base, count in
                unsafe name.withPlatformString {
                    unsafe readlinkat(descriptor.rawValue, $0, base, count)
                }
            },
            decode: { unsafe Array($0) }
        )
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
        return try unsafe link(
            FilePath.Component(name),
            read: { base, count in unsafe readlinkat(descriptor.rawValue, name, base, count) },
            decode: { unsafe String(decoding: $0, as: UTF8.self) }
        )
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
                .permissionDenied, .fileNameTooLong:
                return nil
            default: throw error
            }
        }
    }

    /// Returns the bytes that `read` writes to a buffer, decoded, or `nil` if it finds no link; errors name `name`.
    private func link<Target>(
        _ name: @autoclosure () -> FilePath.Component?,
        read: (UnsafeMutablePointer<CChar>, Int) -> Int,
        decode: (UnsafeRawBufferPointer) -> Target
    ) throws(FileError) -> Target? {
        do {
            return try unsafe target(of: name(), read: read, decode: decode)
        } catch  where error.errno == .noSuchFileOrDirectory || error.errno == .invalidArgument {
            return nil
        }
    }

    private func target<Target>(
        of name: @autoclosure () -> FilePath.Component?,
        read: (UnsafeMutablePointer<CChar>, Int) -> Int,
        decode: (UnsafeRawBufferPointer) -> Target
    ) throws(FileError) -> Target {
        try unsafe withUnsafeTemporaryAllocation(
            of: CChar.self,
            capacity: Int(PATH_MAX)
        ) { buffer throws(FileError) in
            guard let base = buffer.baseAddress else {
                return unsafe decode(.init(start: nil, count: 0))
            }
            let count = try Self.attempt(
                "read the link",
                at: path.appending([name()].compactMap(\.self))
            ) { unsafe CInt(read(base, buffer.count)) }
            return unsafe decode(
                UnsafeRawBufferPointer(
                    rebasing: UnsafeRawBufferPointer(buffer)[..<Int(count)]
                )
            )
        }
    }
}
