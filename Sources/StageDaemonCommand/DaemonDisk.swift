import Glibc
import StageDaemon
package import StageModel
import StageSystem
package import SystemPackage

/// The disk of a daemon's state directory, compared with the space that the daemon leaves free.
package struct DaemonDisk: Sendable {
    /// The state directory.
    package var path: FilePath
    /// `true` for that of the system's daemon, `false` for that of the user's own.
    package var isSystem: Bool
    /// The free space.
    package var free: ByteCount
    /// The bytes that the daemon leaves free.
    package var reserve: ByteCount

    /// `true` if no more files can be created.
    package var isOutOfInodes: Bool
    /// `true` if the file system is mounted read-only.
    package var isReadOnly: Bool

    /// `true` if less is free than the daemon leaves free.
    package var isFull: Bool { free < reserve }

    /// Looks at the disks of the system's daemon and of the user's own; leaves out those of daemons that have not run yet, and
    /// those that this user may not look at.
    package static func all(environment: [String: String]) -> [DaemonDisk] {
        (geteuid() == 0 ? [true] : [true, false]).compactMap { isSystem in
            let paths = DaemonPaths(
                environment: isSystem ? [:] : environment,
                isSystem: isSystem
            )
            let path = FilePath(paths.state)
            // A missing directory, or one that this user may not enter, has no finding.
            guard let directory = try? Directory.open(path),
                let space = try? directory.freeSpace()
            else { return nil }
            // 'doctor' reports a configuration that cannot be read, with which the daemon does not start.
            let configuration = try? DaemonConfiguration(
                contentsOf: FilePath(paths.configuration)
            )
            return DaemonDisk(
                path: path,
                isSystem: isSystem,
                free: ByteCount(space.bytes),
                reserve: (configuration ?? DaemonConfiguration()).reserve,
                isOutOfInodes: space.files == 0,
                isReadOnly: directory.isOnReadOnlyFileSystem
            )
        }
    }
}
