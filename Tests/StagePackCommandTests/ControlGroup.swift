import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A control group of the running test that limits one resource, in version 1 or 2 of the kernel's interface.
struct ControlGroup {
    /// The resource that a group limits.
    enum Resource: String {
        case processes = "pids"
        case memory = "memory"

        /// The file that holds the limit, in both versions.
        fileprivate var names: [FilePath.Component] {
            switch self {
            case .processes: ["pids.max"]
            case .memory: ["memory.limit_in_bytes", "memory.max"]
            }
        }
    }

    /// The directory of the group.
    let path: FilePath

    /// Makes a group with a limit.
    init(_ resource: Resource, limit: Int) throws {
        let parent = try #require(Self.parent(of: resource), "there is no such control group")
        let mark = "stagepack-tests-\(getpid())-\(UInt64.random(in: .min ... .max))"
        path = parent.appending(mark)
        try #require(unsafe mkdir(path.string, 0o755) == 0)
        let file = try #require(resource.names.first { FileStatus.exists(path.appending($0)) })
        let limited = try FileDescriptor.open(path.appending(file), .writeOnly)
        try limited.closeAfter { _ = try limited.writeAll("\(limit)".utf8) }
    }

    /// The command that enters the group and executes another command.
    var wrapper: [String] {
        ["/bin/sh", "-c", #"echo $$ >"$0/cgroup.procs" || exit 99; exec "$@""#, path.string]
    }

    /// Ends the remaining processes of the group, and removes it.
    func remove() async throws {
        try await poll("the control group '\(path)' stays") {
            let file = try FileDescriptor.open(path.appending("cgroup.procs"), .readOnly)
            let text = try file.closeAfter { try Self.text(of: file) }
            for process in text.split(separator: "\n").compactMap({ pid_t($0) }) {
                kill(process, SIGKILL)
            }
            return unsafe rmdir(path.string) == 0
        }
    }

    private static func text(of file: FileDescriptor) throws -> String {
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        let count = try unsafe bytes.withUnsafeMutableBytes { try unsafe file.read(into: $0) }
        return String(decoding: bytes[..<count], as: UTF8.self)
    }

    /// Returns whether the test may create groups that limit the resource.
    static func canLimit(_ resource: Resource) -> Bool { parent(of: resource) != nil }

    private static func parent(of resource: Resource) -> FilePath? {
        let root: FilePath = "/sys/fs/cgroup"
        let parents = [root.appending(resource.rawValue), root]
        return parents.first { parent in
            let probe = parent.appending(
                "stagepack-tests-probe-\(getpid())-\(UInt32.random(in: .min ... .max))"
            )
            guard unsafe mkdir(probe.string, 0o755) == 0 else { return false }
            defer { unsafe _ = rmdir(probe.string) }
            return resource.names.contains { FileStatus.exists(probe.appending($0)) }
        }
    }
}
