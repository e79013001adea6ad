package import SystemPackage

/// A new file under a temporary name beside its final one, locked as long as the value exists.
///
/// The lock tells it from files that killed processes left, which ``make(for:in:permissions:)`` removes. The owner
/// renames or removes it.
package struct TemporaryFile: ~Copyable, Sendable {
    /// The open file, whose errors have the final path.
    package let file: File
    /// The temporary name.
    package let name: FilePath.Component
    /// `nil` on file systems without locks.
    private let lock: FileLock?

    /// Creates a file beside `name`, after removing those that killed processes left there.
    package static func make(
        for name: FilePath.Component,
        in directory: Directory,
        permissions: FilePermissions = .file
    ) throws(FileError) -> TemporaryFile {
        removeLeftovers(of: name, in: directory)
        while true {
            let path = directory.temporaryName(for: name)
            guard let temporary = path.lastComponent else {
                throw FileError("create", path: path, errno: .invalidArgument)
            }
            let file = try directory.file(creating: path, for: name, permissions: permissions)
            let inode = try file.status().inode
            let lock: FileLock?
            do throws(FileError) {
                // Another process holds the lock for a moment, to remove the file.
                guard let taken = try attemptLock(path, in: directory) else { continue }
                lock = consume taken
            } catch {
                lock = nil
            }
            // Another process may have removed the file before it was locked.
            guard try directory.status(path)?.inode == inode else { continue }
            return TemporaryFile(file: file, name: temporary, lock: lock)
        }
    }

    /// Locks a file; returns `nil` if it is gone, or another process has locked it.
    ///
    /// - Throws: ``FileError`` where files cannot be locked: no process takes them for leftovers there.
    private static func attemptLock(
        _ path: FilePath,
        in directory: Directory
    ) throws(FileError) -> FileLock? {
        guard let file = try directory.file(updatingExisting: path) else { return nil }
        return try FileLock.attempt(file, mode: .exclusive)
    }

    /// Removes the temporary files beside `name` that no process has locked.
    ///
    /// Errors are ignored: the next call tries again.
    package static func removeLeftovers(of name: FilePath.Component, in directory: Directory) {
        for entry in (try? directory.entries()) ?? [] where isTemporary(entry.path, for: name) {
            // A leftover that cannot be removed does no harm.
            guard let lock = try? attemptLock(entry.path, in: directory) else { continue }
            lock.removeFile(entry.name, in: directory)
            _ = consume lock
        }
    }

    /// Returns whether a name is one of ``Directory/temporaryName(for:)`` for `name`, and not for a longer one.
    private static func isTemporary(_ path: FilePath, for name: FilePath.Component) -> Bool {
        let (prefix, suffix) = (".\(name.string).", ".tmp")
        let text = path.string
        guard text.hasPrefix(prefix), text.hasSuffix(suffix) else { return false }
        return Directory.isRandomPart(text.dropFirst(prefix.count).dropLast(suffix.count))
    }
}

extension Directory {
    /// Writes a file atomically, like ``write(_:to:durably:exactly:modifiedAfter:)``, after removing the temporary files that
    /// killed processes left beside it.
    ///
    /// Reads the directory for these.
    package func rewrite(
        _ content: [UInt8],
        to name: FilePath.Component,
        durably: Bool,
        exactly mode: FilePermissions? = nil
    ) throws(FileError) {
        let temporary = try TemporaryFile.make(for: name, in: self, permissions: mode ?? .file)
        do throws(FileError) {
            if let mode { try temporary.file.ensureMode(mode) }
            try temporary.file.write(content.span, at: 0)
            if durably { try temporary.file.synchronize() }
            try rename(FilePath(temporary.name), over: name)
            if durably { try synchronize() }
        } catch {
            // The first error is the one to report, and the next call removes what stays.
            _ = try? remove(temporary.name)
            throw error
        }
    }
}
