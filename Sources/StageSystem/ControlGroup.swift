import CLinux
import Glibc
import SystemPackage

/// A control group of version 2 (cgroups(7)): processes that are limited together and killed together.
///
/// Control groups are directories of the kernel. They outlive this process, and last until the machine
/// restarts.
package struct ControlGroup: Sendable {
    /// Limits of all processes of a group together; `nil` for no limit.
    package struct Limits: Equatable, Sendable {
        /// The number of processes and threads.
        package var tasks: Int64?
        /// Bytes of memory, including the page cache.
        package var memory: Int64?

        /// Creates limits from the number of tasks and the bytes of memory.
        package init(tasks: Int64?, memory: Int64?) {
            self.tasks = tasks
            self.memory = memory
        }

        /// Returns these limits divided into `parts` equal shares.
        package func divided(by parts: Int64) -> Limits {
            Limits(tasks: tasks.map { $0 / parts }, memory: memory.map { $0 / parts })
        }
    }

    let directory: Directory

    /// Returns the control group of this process if the service manager has delegated it to the process, and
    /// `nil` otherwise.
    ///
    /// systemd 252 and later mark delegated groups (`Delegate=` in systemd.resource-control(5)) with the
    /// extended attribute `user.delegate`.
    package static func delegated() throws(FileError) -> ControlGroup? {
        guard let path = try pathOfThisProcess() else { return nil }
        let directory = try Directory.open(path)
        let isDelegated = unsafe stage_has_attribute(
            directory.descriptor.rawValue,
            "user.delegate",
            CChar(bitPattern: UInt8(ascii: "1"))
        )
        return isDelegated == 1 ? ControlGroup(directory: directory) : nil
    }

    /// Opens the group `name` in this one, and creates it if it does not exist.
    package func makeGroup(_ name: String) throws(FileError) -> ControlGroup {
        ControlGroup(directory: try directory.makeDirectory(FilePath(name)))
    }

    /// Moves this process, with all its threads, into the group.
    package func enter() throws(FileError) { try write("0", to: "cgroup.procs") }

    /// Enables limits for the groups in this one, as far as the kernel has the controllers.
    ///
    /// - Throws: ``FileError`` with `EBUSY` while the group itself contains processes.
    package func allowLimits() throws(FileError) {
        let available = try text(of: "cgroup.controllers").split(separator: " ")
        for controller in ["pids", "memory"] where available.contains(Substring(controller)) {
            try write("+\(controller)", to: "cgroup.subtree_control")
        }
    }

    /// Returns the limits of the group itself; the limits of its parents apply as well.
    package func limits() throws(FileError) -> Limits {
        Limits(tasks: try limit("pids.max"), memory: try limit("memory.max"))
    }

    /// Sets limits; ignores those for which the kernel has no controller here.
    package func set(_ limits: Limits) throws(FileError) {
        for (name, limit) in [("pids.max", limits.tasks), ("memory.max", limits.memory)] {
            guard let limit else { continue }
            do {
                try write("\(limit)", to: FilePath(name))
            } catch  where error.errno == .noSuchFileOrDirectory {
                // The parent group has no such controller.
            }
        }
    }

    /// Kills all processes of the group and its subgroups, including those that are being forked.
    ///
    /// - Throws: ``FileError`` with `ENOENT` on Linux before 5.14, which has no `cgroup.kill`.
    package func kill() throws(FileError) { try write("1", to: "cgroup.kill") }

    /// Removes the group `name` of this one, and returns whether it is gone.
    ///
    /// Returns `false` while the group contains processes or groups.
    package func removeGroup(_ name: String) throws(FileError) -> Bool {
        guard let name = FilePath.Component(name) else { return false }
        do {
            return try directory.removeDirectory(name)
        } catch  where error.errno == .resourceBusy || error.errno == .directoryNotEmpty {
            return false
        }
    }

    /// Opens `cgroup.procs`, through which a process joins the group.
    func openProcesses() throws(FileError) -> FileDescriptor {
        try directory.openFile("cgroup.procs", flags: O_WRONLY, mode: 0)
    }

    /// Reads a number; `nil` for no limit, or if the group lacks the file.
    func limit(_ name: FilePath) throws(FileError) -> Int64? {
        guard let content = try directory.bytes(of: name, limit: 64) else { return nil }
        // The word 'max' means no limit.
        return Int64(String(decoding: content, as: UTF8.self).prefix { $0 != "\n" })
    }

    private func text(of name: FilePath) throws(FileError) -> String {
        let content = try directory.bytes(of: name, limit: 1 << 16) ?? []
        return String(decoding: content.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
    }

    private func write(_ text: String, to name: FilePath) throws(FileError) {
        let descriptor = try directory.openFile(name, flags: O_WRONLY, mode: 0)
        let file = File(adopting: descriptor, path: directory.path.pushing(name))
        try file.write(Array(text.utf8).span, at: 0)
    }
}

extension ControlGroup {
    /// A tree of control groups that the kernel may have.
    enum Hierarchy {
        /// The one tree of version 2.
        case unified
        /// The tree of version 1 that limits memory.
        case memory
    }

    /// Returns the directory of the group of this process; `nil` if the tree is not mounted.
    static func pathOfThisProcess(
        in hierarchy: Hierarchy = .unified
    ) throws(FileError) -> FilePath? {
        path(
            groups: try lines(of: "/proc/self/cgroup"),
            mounts: try lines(of: "/proc/self/mountinfo"),
            in: hierarchy
        )
    }

    /// Returns the directory of the group of a process, from the lines of its `cgroup` and `mountinfo`.
    static func path(
        groups: [Substring],
        mounts: [Substring],
        in hierarchy: Hierarchy
    ) -> FilePath? {
        guard let group = groups.lazy.compactMap({ hierarchy.group(of: $0) }).first else {
            return nil
        }
        for mount in mounts {
            guard let (root, mountPoint) = hierarchy.mount(of: mount) else { continue }
            // Without a namespace of its own, a container has a part of the tree, and full paths of groups.
            let base = root == "/" ? "" : root
            guard group == root || group.hasPrefix(base + "/") else { continue }
            let below = group.dropFirst(base.count).drop { $0 == "/" }
            return FilePath(mountPoint).pushing(FilePath(String(below)))
        }
        return nil
    }

    private static func lines(of path: FilePath) throws(FileError) -> [Substring] {
        let file = try File.open(reading: path)
        return String(decoding: try file.readAll(limit: 1 << 22), as: UTF8.self).split(
            separator: "\n"
        )
    }
}

extension ControlGroup.Hierarchy {
    /// Returns the path of the group that a line of `/proc/self/cgroup` names, if it is one of this tree.
    fileprivate func group(of line: Substring) -> Substring? {
        // "NUMBER:CONTROLLER,...:PATH", of version 2 "0::PATH" (cgroups(7))
        let fields = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
        guard fields.count == 3, fields[2].hasPrefix("/") else { return nil }
        let isInThis =
            switch self {
            case .unified: fields[0] == "0" && fields[1].isEmpty
            case .memory: fields[1].split(separator: ",").contains("memory")
            }
        return isInThis ? fields[2] : nil
    }

    /// Returns the group at the top of a mounted tree, and the mount point, if a line of `/proc/self/mountinfo` is
    /// about this tree.
    fileprivate func mount(of line: Substring) -> (root: String, mountPoint: String)? {
        // "ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS [TAG ...] - TYPE SOURCE OPTIONS" (proc(5))
        let fields = line.split(separator: " ")
        guard let end = fields.firstIndex(of: "-"), end >= 6, end + 3 < fields.count else {
            return nil
        }
        let isThis =
            switch self {
            case .unified: fields[end + 1] == "cgroup2"
            case .memory:
                fields[end + 1] == "cgroup"
                    && fields[end + 3].split(separator: ",").contains("memory")
            }
        return isThis ? (Mount.unescaped(fields[3]), Mount.unescaped(fields[4])) : nil
    }
}
