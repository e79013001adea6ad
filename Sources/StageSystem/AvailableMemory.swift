import CLinux
import Glibc
import SystemPackage

/// An estimate of the memory that this process may still allocate.
public enum AvailableMemory {
    /// Returns the number of bytes: the least of what the machine, the control groups (cgroups(7), version 2) and the
    /// limit of the address space (`RLIMIT_AS`, getrlimit(2)) leave.
    ///
    /// A limit that cannot be read does not count. Other processes may allocate the same memory.
    public static func byteCount() -> Int64 {
        min(machine() ?? .max, controlGroups() ?? .max, addressSpace() ?? .max)
    }

    /// `MemAvailable` of proc_meminfo(5).
    private static func machine() -> Int64? {
        for line in text("/proc/meminfo")?.split(separator: "\n") ?? [] {
            let fields = line.split(separator: " ")
            if fields.first == "MemAvailable:", fields.count > 1 {
                return Int64(fields[1]).map { $0 << 10 }
            }
        }
        return nil
    }

    /// The least of what the process's control group and those above it leave.
    private static func controlGroups() -> Int64? {
        let lines = text("/proc/self/cgroup")?.split(separator: "\n") ?? []
        guard let line = lines.first(where: { $0.hasPrefix("0::/") }) else { return nil }
        var path = FilePath("/sys/fs/cgroup").pushing(
            FilePath(String(line.dropFirst("0::/".count)))
        )
        var least: Int64?
        while path.starts(with: "/sys/fs/cgroup") {
            if let limit = number(path.appending("memory.max")),
                let used = number(path.appending("memory.current"))
            {
                least = min(least ?? .max, max(0, limit - used))
            }
            guard path.removeLastComponent() else { break }
        }
        return least
    }

    private static func addressSpace() -> Int64? {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0,
            limit.rlim_cur < UInt64(Int64.max),
            let pages = text("/proc/self/statm")?.split(separator: " ").first.flatMap({ Int64($0) })
        else { return nil }
        return max(0, Int64(limit.rlim_cur) - pages * Int64(sysconf(CInt(_SC_PAGESIZE))))
    }

    private static func number(_ path: FilePath) -> Int64? {
        text(path).flatMap { Int64($0.prefix { $0 != "\n" }) }
    }

    /// Reads a file of the kernel; `nil` if that fails.
    private static func text(_ path: FilePath) -> String? {
        guard let file = try? File.open(readingRegular: path),
            let bytes = try? file.readAll(limit: 64 << 10)
        else { return nil }
        return String(decoding: bytes, as: UTF8.self)
    }
}
