package import StageModel
import StageSystem
package import SystemPackage

extension ExtensionHost {
    /// What the program may touch for a request.
    func sandbox(for request: ExtensionRequest, readable: [FilePath]) -> Sandbox {
        Sandbox(
            readable: Self.systemFiles + [request.manifest] + readable,
            executable: Self.systemPrograms + Self.files(of: program),
            writable: [request.scratch, request.container],
            addressSpace: UInt64(clamping: limits.addressSpace.rawValue),
            fileSize: UInt64(clamping: limits.fileSize.rawValue),
            processorSeconds: UInt64(clamping: limits.processorSeconds)
        )
    }

    /// The program, and its folder where that can be its own.
    package static func files(of program: Registration.Program) -> [FilePath] {
        let path = FilePath(program.path)
        let folder = (path.resolved ?? path).removingLastComponent()
        return canBeOwn(folder) ? [path, folder] : [path]
    }

    /// Whether a folder can be a program's own, and no directory of the system that it was put into:
    /// `/etc`, `/home/ada` or `/var/lib` has files that are not the application's.
    private static func canBeOwn(_ folder: FilePath) -> Bool {
        let names = folder.components.map(\.string)
        switch names.first {
        case "home", "var": return names.count > 2
        default: return names.count > 1
        }
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
    package static let systemPrograms: [FilePath] = [
        "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr",
    ]

    /// What runtimes read beside them.
    ///
    /// Of `/etc` only what no secret can be in: a host may run as root. `/proc` is added by the child
    /// itself, which may have one of its own (`stage_hide_processes`).
    package static let systemFiles: [FilePath] = [
        "/etc/alternatives", "/etc/group", "/etc/ld.so.cache", "/etc/ld.so.conf",
        "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/locale.alias", "/etc/localtime",
        "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/perl", "/etc/python3",
        "/etc/python3.11", "/etc/ssl/openssl.cnf", "/etc/timezone", "/sys/devices/system/cpu",
    ]
}
