import CLinux
import Glibc
import SystemPackage

/// An estimate of the memory that this process may still allocate.
package enum AvailableMemory {
    /// Returns the number of bytes: the least of what the machine, the control groups (cgroups(7)) and the limit of
    /// the address space (`RLIMIT_AS`, getrlimit(2)) leave.
    ///
    /// The page cache does not count as used, since the kernel takes it back.
    ///
    /// A limit that cannot be read does not count. Other processes may allocate the same memory.
    ///
    /// - Parameter countingSwap: Pass `true` to count the machine's free swap space, too.
    /// - Returns: The number of bytes.
    package static func byteCount(countingSwap: Bool = false) -> Int64 {
        min(
            machine(countingSwap: countingSwap) ?? .max,
            ControlGroup.availableMemory() ?? .max,
            addressSpace() ?? .max
        )
    }

    /// `MemAvailable` of proc_meminfo(5), with `SwapFree` if that counts.
    private static func machine(countingSwap: Bool) -> Int64? {
        var sizes: [Substring: Int64] = [:]
        for line in text("/proc/meminfo")?.split(separator: "\n") ?? [] {
            let fields = line.split(separator: " ")
            if fields.count > 1 { sizes[fields[0]] = Int64(fields[1]).map { $0 << 10 } }
        }
        let swap = countingSwap ? sizes["SwapFree:"] ?? 0 : 0
        return sizes["MemAvailable:"].map { $0 + swap }
    }

    private static func addressSpace() -> Int64? {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0,
            limit.rlim_cur < UInt64(Int64.max),
            let pages = text("/proc/self/statm")?.split(separator: " ").first.flatMap({ Int64($0) })
        else { return nil }
        return max(0, Int64(limit.rlim_cur) - pages * Int64(sysconf(CInt(_SC_PAGESIZE))))
    }

    /// Reads a file of the kernel; `nil` if that fails.
    private static func text(_ path: FilePath) -> String? {
        guard let file = try? File.open(readingRegular: path),
            let bytes = try? file.readAll(limit: 64 << 10)
        else { return nil }
        return String(decoding: bytes, as: UTF8.self)
    }
}
