import SystemPackage

extension ControlGroup {
    /// Returns the bytes of memory that the groups of this process and those above them leave; `nil` without a limit.
    ///
    /// A group that cannot be read does not count.
    static func availableMemory() -> Int64? {
        MemoryFiles.versions.compactMap { files -> Int64? in
            // Most machines have only one version of control groups.
            guard var path = try? pathOfThisProcess(in: files.hierarchy) else { return nil }
            var least: Int64?
            // Directories above the mount point have no such file.
            while FileStatus.exists(path.appending("cgroup.procs")) {
                if let left = try? memory(leftIn: path, files) { least = min(least ?? .max, left) }
                guard path.removeLastComponent() else { break }
            }
            return least
        }
        .min()
    }

    /// Returns the bytes that one group leaves; `nil` without a limit.
    private static func memory(
        leftIn path: FilePath,
        _ files: MemoryFiles
    ) throws(FileError) -> Int64? {
        let group = ControlGroup(directory: try Directory.open(path))
        guard let limit = try group.limit(files.limit), let used = try group.limit(files.used)
        else { return nil }
        let cache = try group.numbers(of: "memory.stat", named: files.cache).reduce(0, +)
        return max(0, limit - max(0, used - cache))
    }

    /// Returns the numbers of lines of the form "NAME NUMBER".
    private func numbers(
        of name: FilePath,
        named names: Set<Substring>
    ) throws(FileError) -> [Int64] {
        let bytes = try directory.bytes(of: name, limit: 1 << 16) ?? []
        return String(decoding: bytes, as: UTF8.self).split(separator: "\n").compactMap { line in
            let fields = line.split(separator: " ")
            return fields.count == 2 && names.contains(fields[0]) ? Int64(fields[1]) : nil
        }
    }
}

/// The files of a control group about its memory.
private struct MemoryFiles {
    var hierarchy: ControlGroup.Hierarchy
    var limit: FilePath
    var used: FilePath
    /// Members of `memory.stat` about the page cache, those of groups below included.
    var cache: Set<Substring>

    static let versions = [
        MemoryFiles(
            hierarchy: .unified,
            limit: "memory.max",
            used: "memory.current",
            cache: ["inactive_file", "active_file"]
        ),
        MemoryFiles(
            hierarchy: .memory,
            limit: "memory.limit_in_bytes",
            used: "memory.usage_in_bytes",
            cache: ["total_inactive_file", "total_active_file"]
        ),
    ]
}
