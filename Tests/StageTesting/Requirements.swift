import Glibc
import StageSystem
import SystemPackage
package import Testing

/// Traits of tests that need rights or programs that not every user or machine has: otherwise the test is skipped.
extension Trait where Self == ConditionTrait {
    /// Only root runs the test, for this reason.
    package static func root(_ reason: Comment) -> Self {
        .enabled(reason) { geteuid() == 0 }
    }

    /// Every user but root runs the test, for this reason.
    package static func otherThanRoot(_ reason: Comment) -> Self {
        .enabled(reason) { geteuid() != 0 }
    }

    /// The test starts processes of several users.
    package static var severalUsers: Self { .root("processes of several users take root") }

    /// The test mounts a file system for all processes.
    package static var mountedFileSystems: Self { .root("mounting takes root") }

    /// The test uses a network namespace with separate addresses.
    package static var ownNetwork: Self { .root("a network of the test's own takes root") }

    /// The test starts programs in a mount namespace.
    package static var mountNamespace: Self {
        .enabled("this user creates no mount namespaces") { canCreateMountNamespace }
    }

    /// The test starts root's programs in a mount namespace.
    package static var rootInMountNamespace: Self {
        .enabled("takes root, and a mount namespace") { geteuid() == 0 && canCreateMountNamespace }
    }

    /// The test gives root's programs a separate '/var/lib' or '/run'; other users have these directories in their home.
    package static var mountNamespaceIfRoot: Self {
        .enabled("root needs a '/var/lib' or '/run' of its own") {
            geteuid() != 0 || canCreateMountNamespace
        }
    }

    /// The test restricts programs to certain files.
    package static var landlock: Self {
        .enabled("the kernel has no Landlock") { Confinement.supportedVersion > 0 }
    }

    /// The test receives kernel events, through a socket of a family that netlink(7) names.
    package static func netlink(family: CInt) -> Self {
        .enabled("the system refuses sockets for messages of the kernel") {
            let descriptor = socket(AF_NETLINK, CInt(SOCK_RAW.rawValue), family)
            guard descriptor >= 0 else { return false }
            close(descriptor)
            return true
        }
    }

    /// The test mounts file systems in user space.
    package static var fuse: Self {
        .enabled("the kernel has no '/dev/fuse'") { FileStatus.exists("/dev/fuse") }
    }

    /// The test watches or changes system calls with strace, which is installed.
    package static var strace: Self {
        .enabled("takes strace") { FileStatus.isExecutable("/usr/bin/strace") }
    }

    /// The test watches or changes system calls with strace, which is installed and may trace processes.
    package static var tracing: Self {
        .enabled("strace is missing, or may trace no processes") { canTrace }
    }
}

/// `true` if this user may create mount namespaces.
private let canCreateMountNamespace = succeeds(["/usr/bin/unshare", "-m", "/bin/true"])

/// `true` if strace is installed and may trace processes.
private let canTrace = succeeds(["/usr/bin/strace", "-f", "-o", "/dev/null", "/bin/true"])

private func succeeds(_ command: [String]) -> Bool {
    // If the program cannot be started, it is missing.
    guard let process = try? StartedProcess(command, log: "/dev/null") else { return false }
    return process.end() == 0
}
