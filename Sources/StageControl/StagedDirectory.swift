import StageSystem
public import SystemPackage

/// The directory that a daemon leaves finished downloads of this user in.
///
/// The daemon names it (``ServiceStatus/staged``), and is believed as far as the connection is: it is
/// root's or the user's own. Even so a client takes no file that is elsewhere, or that a third user
/// could have put there or still holds.
public struct StagedDirectory: Hashable, Sendable {
    /// The absolute path.
    public let path: FilePath

    /// Creates the directory that a daemon has named.
    public init(path: FilePath) { self.path = path }

    /// Whether the file that an event says is here is in this directory and, unless it was taken
    /// already, a regular file of this user's with no second name, in a directory that no third user can
    /// change.
    public func accepts(_ location: String) -> Bool {
        guard let name = name(of: location) else { return false }
        // Where nothing can be seen, there is nothing that could be another's.
        guard let directory = try? Directory.open(path),
            let status = try? directory.status(FilePath(name))
        else { return !FileStatus.exists(FilePath(location)) }
        guard let folder = FileStatus(of: directory.descriptor) else { return false }
        return Self.isOwn(folder) && Self.isTakeable(status)
    }

    private func name(of location: String) -> FilePath.Component? {
        let location = FilePath(location)
        guard path.isAbsolute, let name = location.lastComponent, name.kind == .regular,
            // Compared as it is written: '..' in it is no way out.
            location.removingLastComponent() == path
        else { return nil }
        return name
    }

    private static var user: UInt32 { UserIdentity.current.user }

    /// Whether only this user and root can put names into the directory.
    private static func isOwn(_ folder: FileStatus) -> Bool {
        [0, user].contains(folder.owner) && folder.mode & 0o022 == 0
    }

    private static func isTakeable(_ status: FileStatus) -> Bool {
        status.kind == .file && status.owner == user && status.linkCount == 1
    }
}
