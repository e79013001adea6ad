import Glibc
package import SystemPackage

/// Permission bits of a file, and its owner and group.
package struct FileAccess: Equatable, Sendable {
    /// The permission bits, without set-id bits.
    package var mode: FilePermissions
    /// The user id of the owner.
    package var owner: UInt32
    /// The group id of the file.
    package var group: UInt32

    /// The permission bits of a new file before it has the group: no other group may write it, and its owner may, to find out
    /// later whether a process still does.
    package var initialMode: FilePermissions {
        mode.subtracting([.groupWrite, .otherWrite]).union(.ownerReadWrite)
    }

    /// The permission bits without those of the group that others do not have.
    fileprivate var modeForAnyGroup: FilePermissions {
        let others = FilePermissions(rawValue: (mode.rawValue & 0o007) << 3)
        let group = FilePermissions(rawValue: 0o070)
        return mode.subtracting(group.subtracting(others))
    }
}

extension Directory {
    /// Returns the access to the regular file `name`, for a file that replaces it; `nil` if there is none.
    package func fileAccess(of name: FilePath.Component) throws(FileError) -> FileAccess? {
        guard let present = try status(FilePath(name)), present.kind == .file else { return nil }
        return FileAccess(
            mode: FilePermissions(rawValue: present.mode & 0o777),
            owner: present.owner,
            group: present.group
        )
    }
}

extension File {
    /// Sets the owner, the group and the permission bits, as far as this user may.
    ///
    /// Only root may give files to other users; other users may give theirs to the groups that they belong to. If the
    /// group cannot be set, the group that the file has gets only the permissions of others, because it may have other members.
    package func setAccess(_ access: FileAccess) throws(FileError) {
        let present = try status()
        var mode = access.mode
        if present.owner != access.owner || present.group != access.group {
            let hasOwner = fchown(descriptor.rawValue, access.owner, access.group) == 0
            let hasGroup =
                hasOwner || present.group == access.group
                || fchown(descriptor.rawValue, present.owner, access.group) == 0
            if !hasGroup { mode = access.modeForAnyGroup }
        }
        try ensureMode(mode)
    }
}
