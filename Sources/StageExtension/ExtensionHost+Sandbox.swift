package import StageModel
import StageSystem
package import SystemPackage

extension ExtensionHost {
    /// Returns the sandbox for a request.
    func sandbox(for request: ExtensionRequest, readable: [FilePath]) -> Sandbox {
        Sandbox(
            readable: Self.systemFiles + [request.manifest] + readable,
            executable: Self.systemPrograms + Self.files(of: program),
            writable: [request.scratch, request.container],
            addressSpace: UInt64(clamping: limits.addressSpace.rawValue),
            fileSize: UInt64(clamping: limits.fileSize.rawValue),
            cpuSecondLimit: UInt64(clamping: limits.cpuSecondLimit)
        )
    }

    /// Returns the program's path, and its folder if the folder belongs to the program.
    package static func files(of program: Registration.Program) -> [FilePath] {
        let path = FilePath(program.path)
        let folder = (path.resolved ?? path).removingLastComponent()
        return canBeOwn(folder) ? [path, folder] : [path]
    }

    /// Returns whether a folder can belong to a program.
    ///
    /// Directories of the system such as `/etc`, `/home/ada` or `/var/lib` contain files of others.
    private static func canBeOwn(_ folder: FilePath) -> Bool {
        let names = folder.components.map(\.string)
        switch names.first {
        case "home", "var": return names.count > 2
        default: return names.count > 1
        }
    }

    /// Returns the complete environment of the program.
    static func environment(scratch: FilePath) -> [String: String] {
        [
            "HOME": scratch.string,
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": scratch.string,
        ]
    }

    /// Directories of the system's programs and libraries.
    package static let systemPrograms: [FilePath] = [
        "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr",
    ]

    /// Further files that language runtimes read.
    ///
    /// Includes only those files of `/etc` that contain no secrets, since a host may run as root. The child process
    /// adds `/proc`, possibly one of its own (`stage_hide_processes`).
    package static let systemFiles: [FilePath] = [
        "/etc/alternatives", "/etc/group", "/etc/ld.so.cache", "/etc/ld.so.conf",
        "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/locale.alias", "/etc/localtime",
        "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/perl", "/etc/python3",
        "/etc/python3.11", "/etc/ssl/openssl.cnf", "/etc/timezone", "/sys/devices/system/cpu",
    ]
}
