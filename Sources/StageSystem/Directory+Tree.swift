import CLinux
import Glibc
public import SystemPackage

/// An entry of a directory.
public struct DirectoryEntry: Equatable, Sendable {
    /// The name, as a relative path of one component.
    public let path: FilePath
    /// The file type of the entry.
    public let kind: FileStatus.Kind

    /// The name.
    ///
    /// Debug builds take half a millisecond for each call. Use ``path`` in loops over many entries.
    public var name: FilePath.Component {
        guard let name = path.lastComponent else {
            preconditionFailure("an entry of a directory has a name")
        }
        return name
    }
}

extension Directory {
    /// Returns the entries of the directory, in no order, without `.` and `..`.
    public func entries() throws(FileError) -> [DirectoryEntry] {
        var entries: [DirectoryEntry] = []
        try forEachEntry { entry in
            entries.append(entry)
            return true
        }
        return entries
    }

    /// Calls `body` with the entries of the directory, in no order, without `.` and `..`, until it returns
    /// `false`.
    ///
    /// Holds one entry in memory at a time. `body` may remove the entry that it is called with.
    public func forEachEntry(
        _ body: (DirectoryEntry) throws(FileError) -> Bool
    ) throws(FileError) {
        try forEachTypedName { name, type throws(FileError) in
            try body(DirectoryEntry(path: name, kind: try kind(type, of: name)))
        }
    }

    /// Calls `body` with the names of the directory, in no order, without `.` and `..`, until it returns
    /// `false`; never asks a file system that is mounted on one of them.
    package func forEachName(
        _ body: (FilePath) throws(FileError) -> Bool
    ) throws(FileError) {
        try forEachTypedName { name, _ throws(FileError) in try body(name) }
    }

    /// Calls `body` with each name and its type, as readdir(3) gives it.
    private func forEachTypedName(
        _ body: (FilePath, UInt8) throws(FileError) -> Bool
    ) throws(FileError) {
        // Opens the directory a second time: duplicated descriptors share their read position.
        let copy = try openFile(".", flags: O_RDONLY | O_DIRECTORY, mode: 0)
        guard let stream = unsafe fdopendir(copy.rawValue) else {
            let reason = Errno(rawValue: errno)
            // The error to report is the one of fdopendir(3).
            try? copy.close()
            throw FileError("read", path: path, errno: reason)
        }
        defer { unsafe _ = closedir(stream) }
        while true {
            errno = 0
            guard let entry = unsafe readdir(stream) else {
                if errno != 0 { throw FileError("read", path: path, errno: Errno(rawValue: errno)) }
                return
            }
            let found = unsafe withUnsafePointer(to: &entry.pointee.d_name) { name in
                unsafe name.withMemoryRebound(to: CChar.self, capacity: Int(NAME_MAX) + 1) {
                    // A damaged file system may have empty names.
                    unsafe $0.pointee == 0 || strcmp($0, ".") == 0 || strcmp($0, "..") == 0
                        ? nil : FilePath(platformString: $0)
                }
            }
            guard let name = found else { continue }
            guard try body(name, unsafe entry.pointee.d_type) else { return }
        }
    }

    /// Removes `name` and everything below it, and returns whether it existed.
    ///
    /// Removes symbolic links, and never follows them. A tree of any depth takes a constant number of
    /// descriptors and no recursion: nested directories are first moved up to the top of the tree. Directories that
    /// cannot be moved are an exception, such as those of lower layers of overlayfs: for them, descriptors and
    /// recursion grow with the depth.
    ///
    /// `isOver` is polled between entries; `true` stops the removal, which then throws `EINTR`. Another call
    /// removes the rest.
    ///
    /// Waits some seconds for another process that still writes into the tree: the decoder of a process that was
    /// killed outlives it for a moment.
    @discardableResult
    public func removeTree(
        _ name: FilePath.Component,
        unless isOver: () -> Bool = { false }
    ) throws(FileError) -> Bool {
        guard let status = try status(FilePath(name)) else { return false }
        guard status.kind == .directory else { return try remove(name) }
        guard let top = try directory(FilePath(name)) else { return false }
        try top.allowChanges()
        var (moved, refills) = (0, Refills())
        while true {
            // Each round empties the directories that the previous round moved up.
            while case let entries = try top.entries(), !entries.isEmpty {
                for entry in entries {
                    try top.checkNotInterrupted(unless: isOver)
                    if entry.kind != .directory {
                        try top.remove(entry)
                    } else if let below = try top.directory(entry.path) {
                        try below.allowChanges()
                        try below.empty(into: top, moved: &moved, unless: isOver)
                        _ = try top.removeEmptied(entry.name, &refills)
                    }
                }
            }
            if let existed = try removeEmptied(name, &refills) { return existed }
        }
    }

    /// Removes a directory that was emptied, and returns whether it existed; `nil` if it has entries again.
    private func removeEmptied(
        _ name: FilePath.Component,
        _ refills: inout Refills
    ) throws(FileError) -> Bool? {
        do throws(FileError) {
            return try removeDirectory(name)
        } catch {
            guard error.errno == .directoryNotEmpty, refills.wait() else { throw error }
            return nil
        }
    }

    /// Removes the files of this directory, and moves its directories to `top` under unique names.
    private func empty(
        into top: Directory,
        moved: inout Int,
        unless isOver: () -> Bool
    ) throws(FileError) {
        for entry in try entries() {
            try checkNotInterrupted(unless: isOver)
            guard entry.kind == .directory else {
                try remove(entry)
                continue
            }
            // Moving a directory rewrites its `..`, which needs write permission for it.
            try directory(entry.path)?.allowChanges()
            while true {
                moved += 1
                guard let name = FilePath.Component(".removed-\(moved)") else { break }
                do {
                    try rename(entry.name, toUnused: name, in: top)
                    break
                } catch  where error.errno == .fileExists || error.errno == .directoryNotEmpty {
                    // Another process may be removing the same tree, and have taken the name.
                    continue
                } catch  where error.errno == .noSuchFileOrDirectory {
                    // Another process is removing the same tree.
                    break
                } catch {
                    // overlayfs cannot move a directory of a lower layer, and a full disk may lack a block for the name.
                    try removeTree(entry.name, unless: isOver)
                    break
                }
            }
        }
    }

    /// Throws `EINTR` if the removal is to stop.
    private func checkNotInterrupted(unless isOver: () -> Bool) throws(FileError) {
        if isOver() { throw FileError("remove", path: path, errno: .interrupted) }
    }

    /// Gives the owner all permissions for the directory, and other users none, since it is being removed.
    private func allowChanges() throws(FileError) {
        try Self.attempt("change", at: path) { fchmod(descriptor.rawValue, 0o700) }
    }

    /// Returns the file type from readdir(3), or from lstat(2) if the file system does not report it.
    private func kind(
        _ type: UInt8,
        of name: FilePath
    ) throws(FileError) -> FileStatus.Kind {
        switch Int(type) {
        case Int(DT_REG): .file
        case Int(DT_DIR): .directory
        case Int(DT_LNK): .link
        case Int(DT_UNKNOWN): try status(name)?.kind ?? .other
        default: .other
        }
    }
}

/// A counter of the directories that had new entries after they were emptied.
private struct Refills {
    private var count = 0

    /// Waits a millisecond for the process that writes the entries to end; returns `false` if it was waited for
    /// long enough.
    mutating func wait() -> Bool {
        guard count < 5000 else { return false }
        count += 1
        _ = usleep(1000)
        return true
    }
}
