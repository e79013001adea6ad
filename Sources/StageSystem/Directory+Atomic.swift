import Glibc
public import SystemPackage

extension Directory {
    /// Writes a file at `name` atomically: a reader finds either the old file or the whole new one.
    ///
    /// With `durably`, the data is synced to disk before the file is renamed into place, so that a power cut
    /// cannot leave an empty file. The file gets the permission bits `mode` or, for `nil`, `0644` reduced by
    /// the umask. With `time`, in seconds since 1970, its modification time is later than that second, even
    /// if the second is in the future.
    public func write(
        _ content: [UInt8],
        to name: FilePath.Component,
        durably: Bool,
        exactly mode: FilePermissions? = nil,
        modifiedAfter time: Int64? = nil
    ) throws(FileError) {
        let access = NewFileAccess(initialMode: mode ?? .file, mode: mode)
        try write(content, to: name, durably: durably, access: access, modifiedAfter: time)
    }

    /// Writes a file at `name` atomically and durably, like ``write(_:to:durably:exactly:modifiedAfter:)``, with the owner,
    /// the group and the permission bits of the file that it replaces, as far as this user may set them.
    package func replace(
        _ content: [UInt8],
        at name: FilePath.Component,
        modifiedAfter time: Int64? = nil
    ) throws(FileError) {
        let replaced = try fileAccess(of: name)
        let access = NewFileAccess(initialMode: replaced?.initialMode ?? .file, replaced: replaced)
        try write(content, to: name, durably: true, access: access, modifiedAfter: time)
    }

    private func write(
        _ content: [UInt8],
        to name: FilePath.Component,
        durably: Bool,
        access: NewFileAccess,
        modifiedAfter time: Int64?
    ) throws(FileError) {
        let temporary = temporaryName(for: name)
        do throws(FileError) {
            let file = try file(creating: temporary, for: name, permissions: access.initialMode)
            if let mode = access.mode { try file.ensureMode(mode) }
            if let replaced = access.replaced { try file.setAccess(replaced) }
            try file.write(content.span, at: 0)
            if let time, time < .max, try file.status().modified <= time {
                try file.setModified(time + 1)
            }
            if durably { try file.synchronize() }
            try rename(temporary, over: name)
            if durably { try synchronize() }
        } catch {
            // The first error is the one to report; a container has its own cleanup of what stays.
            try? removeFile(temporary)
            throw error
        }
    }

    /// Creates a temporary file, which must not exist, for reading and writing.
    ///
    /// This error and later ones of the file have the path of `name`, since users do not know the temporary one.
    ///
    /// - Parameters:
    ///   - temporary: The temporary name.
    ///   - name: The final name; `nil` if it depends on the content, which gives errors the path of this directory.
    ///   - permissions: The permission bits, reduced by the umask.
    /// - Throws: ``FileError`` if the file exists or cannot be created.
    /// - Returns: The open file.
    package func file(
        creating temporary: FilePath,
        for name: FilePath.Component?,
        permissions: FilePermissions = .file
    ) throws(FileError) -> File {
        do throws(FileError) {
            let flags = O_RDWR | O_CREAT | O_EXCL
            let file = try openFile(temporary, flags: flags, mode: permissions.rawValue)
            guard let name else { return File(adopting: file, path: path) }
            return File(adopting: file, FilePath(name), in: self)
        } catch {
            let shown = name.map { path.appending($0) } ?? path
            throw FileError("create", path: shown, errno: error.errno)
        }
    }

    /// Creates a symbolic link at the temporary name `temporary`, which must not exist.
    ///
    /// - Throws: ``FileError`` with the path of `name`, the final one.
    package func createLink(
        _ temporary: FilePath,
        for name: FilePath.Component,
        to target: String
    ) throws(FileError) {
        do throws(FileError) {
            try createLink(temporary, to: target)
        } catch {
            throw FileError("create", path: path.appending(name), errno: error.errno)
        }
    }

    /// Creates or replaces, atomically, the symbolic link `name` with one to `target`.
    public func replaceLink(
        _ name: FilePath.Component,
        to target: String
    ) throws(FileError) {
        let temporary = temporaryName(for: name)
        try createLink(temporary, for: name, to: target)
        do throws(FileError) {
            try rename(temporary, over: name)
        } catch {
            // The first error is the one to report; a container has its own cleanup of what stays.
            try? removeFile(temporary)
            throw error
        }
    }

    /// Returns a unique name for a temporary file beside `name`, which ``isTemporary(_:)`` recognises.
    public func temporaryName(for name: FilePath.Component) -> FilePath {
        let randomPart = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        return FilePath(".\(name.string).\(randomPart).tmp")
    }

    /// Returns whether a text can be the random part of a ``temporaryName(for:)``, and not a word of a user's file name.
    static func isRandomPart(_ text: Substring) -> Bool {
        // Shorter numbers are rare, and leftovers with one do no harm.
        (11...13).contains(text.count)
            && text.allSatisfy { $0.isASCII && ($0.isNumber || $0.isLowercase) }
    }

    /// Renames a temporary file of this directory to `name`, atomically.
    ///
    /// Replaces an existing `name`.
    ///
    /// - Throws: ``FileError`` with the path of `name`.
    package func rename(
        _ temporary: FilePath,
        over name: FilePath.Component
    ) throws(FileError) {
        do throws(FileError) {
            try unsafe onParent(of: temporary, operation: "rename") { parent, last in
                unsafe name.withPlatformString {
                    unsafe renameat(parent, last, descriptor.rawValue, $0)
                }
            }
        } catch {
            throw FileError("create", path: path.appending(name), errno: error.errno)
        }
    }

    /// Renames `name` to `newName` in `directory`, which must not exist (`EEXIST`), and which no other process creates
    /// meanwhile: the name is random, or a lock protects it.
    ///
    /// Works on all file systems; a process that breaks the rule can lose a file or an empty directory on those that cannot
    /// refuse to replace a name.
    package func rename(
        _ name: FilePath.Component,
        toUnused newName: FilePath.Component,
        in directory: Directory
    ) throws(FileError) {
        do throws(FileError) {
            try rename(name, to: newName, in: directory, replacing: false)
        } catch {
            guard error.isUnsupported else { throw error }
            guard try directory.status(FilePath(newName)) == nil else {
                throw FileError("rename", path: path.appending(name), errno: .fileExists)
            }
            try rename(name, to: newName, in: directory)
        }
    }

    /// Returns whether `name` is a name of ``temporaryName(for:)``.
    public static func isTemporary(_ name: FilePath.Component) -> Bool {
        name.string.hasPrefix(".") && name.string.hasSuffix(".tmp")
    }
}

/// The access to a file that is written.
private struct NewFileAccess {
    /// The permission bits with which the file is created, reduced by the umask.
    var initialMode: FilePermissions
    /// The exact permission bits; `nil` to leave them.
    var mode: FilePermissions?
    /// The access to the file that is replaced; `nil` to leave it.
    var replaced: FileAccess?
}
