import CLinux
import Glibc
public import SystemPackage

/// One name in a directory.
public struct DirectoryEntry: Equatable, Sendable {
    /// The name.
    public var name: FilePath.Component
    /// What it stands for.
    public var kind: FileStatus.Kind
}

extension Directory {
    /// Returns the names in the directory, in no order, without `.` and `..`.
    public func entries() throws(FileError) -> [DirectoryEntry] {
        var entries: [DirectoryEntry] = []
        try forEachEntry { entry in
            entries.append(entry)
            return true
        }
        return entries
    }

    /// Calls `body` with the names in the directory, in no order, without `.` and `..`, until it
    /// returns `false`; holds one name at a time.
    ///
    /// `body` may remove the name that it is called with.
    public func forEachEntry(
        _ body: (DirectoryEntry) throws(FileError) -> Bool
    ) throws(FileError) {
        // A descriptor of its own: reading moves the position that all copies of one share.
        let copy = try openFile(".", O_RDONLY | O_DIRECTORY, 0)
        guard let stream = unsafe fdopendir(copy.rawValue) else {
            let reason = Errno(rawValue: errno)
            // The error to report is the one of fdopendir(3).
            try? copy.close()
            throw FileError("read", path, reason)
        }
        defer { unsafe _ = closedir(stream) }
        while true {
            errno = 0
            guard let entry = unsafe readdir(stream) else {
                if errno != 0 { throw FileError("read", path, Errno(rawValue: errno)) }
                return
            }
            let text = unsafe withUnsafePointer(to: &entry.pointee.d_name) { name in
                unsafe name.withMemoryRebound(to: CChar.self, capacity: Int(NAME_MAX) + 1) {
                    unsafe FilePath(platformString: $0)
                }
            }
            guard let name = text.lastComponent, name.kind == .regular else { continue }
            let kind = try kind(unsafe entry.pointee.d_type, name)
            guard try body(DirectoryEntry(name: name, kind: kind)) else { return }
        }
    }

    /// Removes `name` and everything below it, and returns whether there was anything.
    ///
    /// Links are removed, never followed; a tree of any depth takes a constant number of descriptors
    /// and no stack: a directory met below is first moved up beside the tree it is in. (Where the file
    /// system does not move directories, as overlayfs those of lower layers, both grow with the depth.)
    ///
    /// `isOver` is polled between entries; `true` stops the removal, which then throws `EINTR` and leaves what is
    /// not removed yet for another call.
    @discardableResult
    public func removeTree(
        _ name: FilePath.Component,
        unless isOver: () -> Bool = { false }
    ) throws(FileError) -> Bool {
        guard let status = try status(FilePath(name)) else { return false }
        guard status.kind == .directory else { return try remove(name) }
        guard let top = try directory(FilePath(name)) else { return false }
        try top.allowChanges()
        var moved = 0
        // Entries come in rounds: each flattens what the round before moved up.
        while case let entries = try top.entries(), !entries.isEmpty {
            for entry in entries {
                try top.goOn(unless: isOver)
                if entry.kind != .directory {
                    try top.remove(entry.name)
                } else if let below = try top.directory(FilePath(entry.name)) {
                    try below.allowChanges()
                    try below.empty(into: top, &moved, unless: isOver)
                    try top.removeDirectory(entry.name)
                }
            }
        }
        return try removeDirectory(name)
    }

    /// Removes the files here, and moves the directories to `top` under names nothing else has.
    private func empty(
        into top: Directory,
        _ moved: inout Int,
        unless isOver: () -> Bool
    ) throws(FileError) {
        for entry in try entries() {
            try goOn(unless: isOver)
            guard entry.kind == .directory else {
                try remove(entry.name)
                continue
            }
            // Moving a directory rewrites its `..`, which needs write permission on it.
            try directory(FilePath(entry.name))?.allowChanges()
            while true {
                moved += 1
                guard let name = FilePath.Component(".removed-\(moved)") else { break }
                do {
                    try rename(entry.name, to: name, in: top, replacing: false)
                    break
                } catch  where error.errno == .fileExists {
                    continue
                } catch  where error.errno == .noSuchFileOrDirectory {
                    // Another process removes the same tree.
                    break
                } catch  where error.errno == .improperLink {
                    // overlayfs moves no directory of a lower layer.
                    try removeTree(entry.name, unless: isOver)
                    break
                }
            }
        }
    }

    /// Throws if a removal is to stop.
    private func goOn(unless isOver: () -> Bool) throws(FileError) {
        if isOver() { throw FileError("remove", path, .interrupted) }
    }

    /// Makes the directory its owner's alone, and writable: what is on its way out is nobody else's.
    private func allowChanges() throws(FileError) {
        try Self.attempt("change", path) { fchmod(descriptor.rawValue, 0o700) }
    }

    /// The kind that readdir(3) told, or lstat(2) where the file system does not tell it.
    private func kind(
        _ type: UInt8,
        _ name: FilePath.Component
    ) throws(FileError) -> FileStatus.Kind {
        switch Int(type) {
        case Int(DT_REG): .file
        case Int(DT_DIR): .directory
        case Int(DT_LNK): .link
        case Int(DT_UNKNOWN): try status(FilePath(name))?.kind ?? .other
        default: .other
        }
    }
}
