import FoundationEssentials
import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

struct AvailableMemoryTests {
    /// The limit is more than zero, and at most the machine's memory.
    @Test func theMachineHasALimit() throws {
        let available = AvailableMemory.byteCount()
        #expect(available > 0 && available < 1 << 50)
    }

    /// A limit of a control group counts in both versions of control groups; the page cache does not.
    @Test(.enabled(if: MemoryGroup.canBeMade))
    func theControlGroupHasALimit() async {
        await #expect(processExitsWith: .success) {
            let limit = Int64(512) << 20
            let group = try #require(try MemoryGroup(limit: limit))
            defer { group.leave() }
            let available = AvailableMemory.byteCount()
            try #require(available <= limit && available > limit / 2, "\(available)")
            let folder = try Directory.open(FilePath(FileManager.default.temporaryDirectory.path))
            let name = try #require(FilePath.Component("stagepack-cached-\(getpid())"))
            try folder.write(noise(100 << 20), to: name, durably: true)
            defer { _ = try? folder.remove(name) }
            let left = AvailableMemory.byteCount()
            try #require(left > available - 40 << 20, "\(left) after \(available)")
        }
    }
}

/// A control group with a memory limit, which contains this process.
private struct MemoryGroup {
    /// The mount point of version 1 or 2.
    private var parent: FilePath
    private var path: FilePath

    private static let parents: [(FilePath, limit: FilePath.Component)] = [
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"),
    ]

    /// Makes the group and enters it; `nil` if that is not possible.
    init?(limit: Int64) throws {
        let name = "stagepack-memory-\(getpid())"
        for (parent, file) in Self.parents {
            let path = parent.appending(name)
            guard unsafe mkdir(path.string, 0o755) == 0 else { continue }
            guard FileStatus.exists(path.appending(file)) else {
                unsafe rmdir(path.string)
                continue
            }
            self.parent = parent
            self.path = path
            try Self.write("\(limit)", to: path.appending(file))
            try Self.write("0", to: path.appending("cgroup.procs"))
            return
        }
        return nil
    }

    /// Returns the process to the root of the hierarchy, and removes the group.
    func leave() {
        // The group is empty now.
        try? Self.write("0", to: parent.appending("cgroup.procs"))
        unsafe rmdir(path.string)
    }

    static var canBeMade: Bool {
        parents.contains { parent, file in
            let probe = parent.appending("stagepack-probe-\(getpid())")
            guard unsafe mkdir(probe.string, 0o755) == 0 else { return false }
            defer { unsafe rmdir(probe.string) }
            return FileStatus.exists(probe.appending(file))
        }
    }

    private static func write(_ text: String, to path: FilePath) throws {
        let file = try FileDescriptor.open(path, .writeOnly)
        try file.closeAfter { _ = try file.writeAll(text.utf8) }
    }
}
