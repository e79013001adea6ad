import CLinux
import Glibc
import SystemPackage

/// A child of this process and its descendants, all stopped.
///
/// A descendant may end at any time, and its process ID may then denote another process. So each one is opened
/// (pidfd_open(2)) before its parent is read, and gets its signals through the descriptor: a signal that arrives shows
/// that the ID still denoted the same process when its parent was read.
struct ProcessTree: ~Copyable {
    private struct Member {
        let id: pid_t
        /// Descriptor of the process, or -1 where its ID has to do: for the child, which is not reaped yet, and if the
        /// kernel opens no processes, such as before Linux 5.3.
        let descriptor: CInt

        /// Creates the child of this process.
        init(child id: pid_t) { (self.id, descriptor) = (id, -1) }

        /// Opens a child of a process; `nil` if it has ended, or if its ID denotes another process now.
        init?(_ id: pid_t, childOf parent: pid_t) {
            let descriptor = stage_open_process(id)
            guard descriptor >= 0 || errno != ESRCH else { return nil }
            guard ProcessTree.parent(of: id) == parent else {
                if descriptor >= 0 { close(descriptor) }
                return nil
            }
            (self.id, self.descriptor) = (id, descriptor)
        }

        func send(_ signal: CInt) {
            // The process may have ended.
            if descriptor >= 0 {
                _ = stage_signal_process(descriptor, signal)
            } else {
                _ = Glibc.kill(id, signal)
            }
        }
    }

    /// The processes, each after its parent.
    private var members: [Member] = []
    private var known: Set<pid_t> = []

    /// Stops a child of this process, which must not be reaped meanwhile, and all its descendants.
    ///
    /// Does not find descendants whose parent has ended, nor any descendant where the kernel does not list children.
    init(stopping child: pid_t) {
        var found = [Member(child: child)]
        while !found.isEmpty {
            for process in found {
                process.send(SIGSTOP)
                known.insert(process.id)
            }
            members += found
            // All processes are listed again: one may have forked before it stopped.
            found = findChildren()
        }
    }

    deinit {
        for process in members where process.descriptor >= 0 { close(process.descriptor) }
    }

    /// Kills the processes, each before its parent.
    func kill() {
        for process in members.reversed() { process.send(SIGKILL) }
    }

    /// Returns the children of the processes that are not stopped yet.
    private func findChildren() -> [Member] {
        var found: [Member] = []
        for parent in members {
            for id in Self.children(of: parent.id) where !known.contains(id) {
                if let child = Member(id, childOf: parent.id) { found.append(child) }
            }
        }
        return found
    }

    /// Returns the children of a process, from `/proc/PID/task/TID/children` (proc(5)).
    private static func children(of process: pid_t) -> [pid_t] {
        // A process that has ended has none.
        guard let threads = try? Directory.open(FilePath("/proc/\(process)/task")),
            let entries = try? threads.entries()
        else { return [] }
        return entries.flatMap { entry in
            let path = threads.path.appending(entry.name).appending("children")
            guard let bytes = try? File.open(reading: path).readAll(limit: 64 << 10) else {
                return [pid_t]()
            }
            return String(decoding: bytes, as: UTF8.self).split(separator: " ").compactMap {
                pid_t($0)
            }
        }
    }

    /// Returns the parent of a process, from `/proc/PID/stat` (proc(5)); `nil` if the process has ended.
    private static func parent(of process: pid_t) -> pid_t? {
        let path = FilePath("/proc/\(process)/stat")
        guard let bytes = try? File.open(reading: path).readAll(limit: 4 << 10) else { return nil }
        // The name of the program, in parentheses before the state and the parent, may contain anything.
        let fields = String(decoding: bytes, as: UTF8.self).split(separator: ")").last?
            .split(separator: " ")
        guard let fields, fields.count > 1 else { return nil }
        return pid_t(fields[1])
    }
}
