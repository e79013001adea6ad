import StageSystem
import SystemPackage

/// Comparison of a client's namespaces with the daemon's (namespaces(7)).
enum ProcessNamespaces {
    /// Returns whether paths mean the same to the client as to this process or to PID 1.
    ///
    /// A service manager may give this process a mount namespace of its own, which hides no files.
    static func sharesMounts(_ client: ClientCredentials) -> Bool {
        // Root may enter any namespace.
        if client.user == 0 { return true }
        guard let mount = firstMount(of: "\(client.process)") else { return false }
        return mount == firstMount(of: "self") || mount == firstMount(of: "1")
    }

    /// Returns whether the client is in this process's network namespace.
    ///
    /// Reads the namespace with the client's user rights. Returns `false` if the process is not dumpable
    /// (`PR_SET_DUMPABLE`). Blocks the thread.
    static func sharesNetwork(_ client: ClientCredentials) -> Bool {
        let name = FilePath("/proc/\(client.process)/ns/net")
        // An ended process cannot be distinguished from a hidden one.
        guard let other = try? client.identity.link(at: name),
            let own = try? UserIdentity.current.link(at: "/proc/self/ns/net")
        else { return false }
        return other == own
    }

    /// Returns the identifier of a process's first mount, which is unique to a mount namespace
    /// (proc_pid_mountinfo(5)); `nil` if it is hidden.
    private static func firstMount(of process: String) -> Substring? {
        guard let file = try? File.open(reading: FilePath("/proc/\(process)/mountinfo")),
            let content = try? file.readAll(limit: 1 << 22)
        else { return nil }
        return String(decoding: content.prefix(64), as: UTF8.self).split(separator: " ").first
    }
}
