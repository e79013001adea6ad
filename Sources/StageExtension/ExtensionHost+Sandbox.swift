import StageModel
import StageSystem
import SystemPackage

extension ExtensionHost {
    /// What the program may touch for a request.
    func sandbox(for request: ExtensionRequest, readable: [FilePath]) -> Sandbox {
        let path = FilePath(program.path)
        var executable = Self.systemPrograms + [path]
        // A program in the root directory does not make all of the system its own folder.
        let folder = (path.resolved ?? path).removingLastComponent()
        if !folder.components.isEmpty { executable.append(folder) }
        return Sandbox(
            readable: Self.systemFiles + [request.manifest] + readable,
            executable: executable,
            writable: [request.scratch, request.container],
            addressSpace: UInt64(clamping: limits.addressSpace.rawValue),
            fileSize: UInt64(clamping: limits.fileSize.rawValue),
            processorSeconds: UInt64(clamping: limits.processorSeconds)
        )
    }

    /// The program's environment, all of it.
    static func environment(scratch: FilePath) -> [String: String] {
        [
            "HOME": scratch.string,
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": scratch.string,
        ]
    }

    /// Where the system's programs and libraries are.
    private static let systemPrograms: [FilePath] = [
        "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr",
    ]

    /// What runtimes read beside them.
    ///
    /// Of `/etc` only what no secret can be in: a host may run as root. Of `/proc` all, since runtimes
    /// look at their threads there by number; what it tells of the environment, the memory and the
    /// files of other processes the kernel keeps from programs in a sandbox.
    private static let systemFiles: [FilePath] = [
        "/etc/alternatives", "/etc/group", "/etc/ld.so.cache", "/etc/ld.so.conf",
        "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/locale.alias", "/etc/localtime",
        "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/python3",
        "/etc/python3.11", "/etc/timezone", "/proc", "/sys/devices/system/cpu",
    ]
}
