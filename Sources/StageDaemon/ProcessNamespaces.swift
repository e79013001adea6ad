import StageSystem
import SystemPackage

/// Compares the namespaces in which a client's process is with those of this one (namespaces(7)).
enum ProcessNamespaces {
    /// Whether paths mean to a caller's process what they mean to this one, or to the first of the machine:
    /// a service manager gives this one mounts of its own that hide nothing.
    static func sharesMounts(_ caller: Caller) -> Bool {
        // The superuser may enter any.
        if caller.user == 0 { return true }
        guard let mount = firstMount(of: "\(caller.process)") else { return false }
        return mount == firstMount(of: "self") || mount == firstMount(of: "1")
    }

    /// Whether a caller's process has the network of this one.
    ///
    /// The namespace is readable for the process's own user, whose rights are taken on for that, unless the process
    /// shows nothing of itself (`PR_SET_DUMPABLE`): then the answer is no. Blocks the thread.
    static func sharesNetwork(_ caller: Caller) -> Bool {
        if caller.user == 0 { return true }
        let name = FilePath("/proc/\(caller.process)/ns/net")
        // A process that has ended is not told apart from one that hides.
        guard let client = try? caller.identity.link(at: name),
            let own = try? UserIdentity.current.link(at: "/proc/self/ns/net")
        else { return false }
        return client == own
    }

    /// The number of the mount that is listed first, which no other mount namespace has
    /// (proc_pid_mountinfo(5)); `nil` if none is shown.
    private static func firstMount(of process: String) -> Substring? {
        guard let file = try? File.open(reading: FilePath("/proc/\(process)/mountinfo")),
            let content = try? file.readAll(limit: 1 << 22)
        else { return nil }
        return String(decoding: content.prefix(64), as: UTF8.self).split(separator: " ").first
    }
}
