import StageSystem
package import SystemPackage

/// Directory in which a daemon leaves this user's finished downloads.
///
/// The daemon reports its path (``ServiceStatus/staged``) and is trusted like its connection: it runs as root or as
/// this user. Even so, a client accepts no file outside the directory, and none that another user could have created
/// or still has access to.
package struct DownloadDirectory: Hashable, Sendable {
    /// Absolute path.
    package let path: FilePath

    /// Creates the directory from the path that a daemon has reported.
    package init(path: FilePath) { self.path = path }

    /// Returns whether a finished download's file may be used.
    ///
    /// It must be in this directory, to which only this user and root can write. Unless it was already moved, it must
    /// be a regular file of this user with a single hard link.
    package func accepts(_ location: String) -> Bool {
        guard let name = name(of: location) else { return false }
        // A file that this process cannot see cannot be another user's.
        guard let directory = try? Directory.open(path),
            let status = try? directory.status(FilePath(name))
        else { return !FileStatus.exists(FilePath(location)) }
        guard let folder = FileStatus(of: directory.descriptor) else { return false }
        return Self.isOwn(folder) && Self.isTakeable(status)
    }

    private func name(of location: String) -> FilePath.Component? {
        let location = FilePath(location)
        guard path.isAbsolute, let name = location.lastComponent, name.kind == .regular,
            // Paths are compared textually, so '..' cannot lead out of the directory.
            location.removingLastComponent() == path
        else { return nil }
        return name
    }

    private static var user: UInt32 { UserIdentity.current.user }

    /// Returns whether only this user and root can create names in the directory.
    private static func isOwn(_ folder: FileStatus) -> Bool {
        [0, user].contains(folder.owner) && folder.mode & 0o022 == 0
    }

    private static func isTakeable(_ status: FileStatus) -> Bool {
        status.kind == .file && status.owner == user && status.linkCount == 1
    }
}
