import CLinux
import Glibc
import Synchronization
public import SystemPackage

/// A user id with its groups from the group database.
public struct UserIdentity: Hashable, Sendable {
    /// The user id.
    public var user: UInt32
    /// The id of the user's primary group.
    public var group: UInt32
    /// The ids of all groups of the user.
    public var groups: [UInt32]

    /// Creates an identity from ids.
    public init(user: UInt32, group: UInt32, groups: [UInt32]) {
        self.user = user
        self.group = group
        self.groups = groups
    }

    /// The effective user of this process.
    public static var current: UserIdentity {
        UserIdentity(user: geteuid(), group: getegid(), groups: [getegid()])
    }

    /// Looks up the groups of a user; a user that the database does not know is only in `group`.
    public init(user: UInt32, group: UInt32) {
        self.init(user: user, group: group, groups: [group])
        guard let account = Account(user: user) else { return }
        var count: CInt = 64
        while true {
            var numbers = [gid_t](repeating: 0, count: Int(count))
            let capacity = count
            let result = unsafe getgrouplist(account.name, group, &numbers, &count)
            if result >= 0 {
                groups = Array(numbers.prefix(Int(count)))
                return
            }
            // The call has set the needed count; the database may change meanwhile.
            guard count > capacity, count < 1 << 16 else { return }
        }
    }
}

/// An account of the user database (passwd(5)).
package struct Account: Hashable, Sendable {
    /// The login name.
    package var name: String
    /// The id of the primary group.
    package var group: UInt32
    /// The home directory.
    package var home: String

    /// Looks up a user id, or returns `nil` if the database does not contain it.
    package init?(user: UInt32) {
        let account = unsafe Self.lookUp { buffer, size -> (CInt, Account?) in
            var entry = unsafe passwd()
            var found: UnsafeMutablePointer<passwd>?
            let status = unsafe getpwuid_r(user, &entry, buffer, size, &found)
            guard status == 0, unsafe found != nil, let name = unsafe entry.pw_name,
                let home = unsafe entry.pw_dir
            else { return (status, nil) }
            return unsafe (
                status,
                Account(
                    name: String(cString: name),
                    group: entry.pw_gid,
                    home: String(cString: home)
                )
            )
        }
        guard let account else { return nil }
        self = account
    }

    private init(name: String, group: UInt32, home: String) {
        self.name = name
        self.group = group
        self.home = home
    }

    /// Calls a lookup in the user or group database until its entry fits into the buffer, which holds 4 MiB at most.
    ///
    /// The lookup returns the entry and its status (getpwnam(3), getgrnam(3)). Only the status ERANGE repeats the call.
    fileprivate static func lookUp<Entry>(
        _ call: (UnsafeMutablePointer<CChar>, Int) -> (status: CInt, entry: Entry?)
    ) -> Entry? {
        var size = 1 << 14
        while true {
            var buffer = [CChar](repeating: 0, count: size)
            let (status, entry) = unsafe call(&buffer, size)
            guard status == ERANGE, size < 1 << 22 else { return entry }
            size *= 2
        }
    }
}

extension UInt32 {
    /// Returns the id of a group given by name or number, or `nil` if the database does not contain it.
    package static func group(named name: String) -> UInt32? {
        if let number = UInt32(name) { return number }
        return unsafe Account.lookUp { buffer, size -> (CInt, UInt32?) in
            var entry = unsafe Glibc.group()
            var found: UnsafeMutablePointer<Glibc.group>?
            let status = unsafe getgrnam_r(name, &entry, buffer, size, &found)
            return unsafe (status, status == 0 && found != nil ? entry.gr_gid : nil)
        }
    }
}

extension File {
    /// Opens the regular file at `path` for reading if `user` may read it, following symbolic links.
    ///
    /// Checks the rights of the user, not of this process: a separate thread assumes the user's identity for
    /// the call (setfsuid(2)). Refuses paths of open files of this process (`/proc/self/fd/…`) and files that
    /// the kernel generates for the reader (procfs, sysfs), because for both the kernel checks this process
    /// instead of the user.
    public static func open(
        readingRegular path: FilePath,
        as user: UserIdentity
    ) throws(FileError) -> File {
        guard user.user != geteuid() else { return try open(readingStored: path) }
        let file = try user.act("open", at: path) { () throws(FileError) in
            try open(readingStored: path).release()
        }
        return File(adopting: file, path: path)
    }

    /// Opens a regular file that is stored on a file system; checks its type before it opens it, since opening a
    /// device or a FIFO has side effects.
    private static func open(readingStored path: FilePath) throws(FileError) -> File {
        let found = File(
            adopting: FileDescriptor(
                rawValue: try Directory.attempt("open", at: path) {
                    unsafe path.withPlatformString { unsafe stage_find_file($0) }
                }
            ),
            path: path
        )
        let descriptor = found.descriptor.rawValue
        let isMadeUp = try Directory.attempt("inspect", at: path) {
            stage_is_kernel_content(descriptor)
        }
        guard isMadeUp == 0, try found.status().kind == .file else {
            throw FileError(notRegular: path)
        }
        let opened = try Directory.attempt("open", at: path) { stage_open_found(descriptor) }
        return File(adopting: FileDescriptor(rawValue: opened), path: path)
    }

    /// Returns a duplicate of the descriptor, which the caller closes.
    private consuming func release() throws(FileError) -> FileDescriptor {
        FileDescriptor(
            rawValue: try Directory.attempt("open", at: path) {
                stage_duplicate(descriptor.rawValue)
            }
        )
    }
}

extension Directory {
    /// Changes the owner and group of the file or directory `name`, without following links.
    public func changeOwner(
        of name: FilePath.Component,
        to user: UserIdentity
    ) throws(FileError) {
        _ = try Self.attempt("change the owner of", at: path.appending(name)) {
            unsafe name.withPlatformString {
                unsafe fchownat(
                    descriptor.rawValue,
                    $0,
                    user.user,
                    user.group,
                    AT_SYMLINK_NOFOLLOW
                )
            }
        }
    }

    /// Sets the permission bits of the file or directory `name`, which is not a link.
    public func changeMode(
        of name: FilePath.Component,
        to mode: FilePermissions
    ) throws(FileError) {
        _ = try Self.attempt("change", at: path.appending(name)) {
            unsafe name.withPlatformString {
                unsafe fchmodat(descriptor.rawValue, $0, mode.rawValue, 0)
            }
        }
    }
}

extension UserIdentity {
    /// Returns the target of a symbolic link, with the rights of the user.
    public func link(at path: FilePath) throws(FileError) -> String {
        @Sendable func read() throws(FileError) -> String {
            guard let name = path.lastComponent,
                let link = try Directory.open(path.removingLastComponent()).link(name)
            else { throw FileError("read", path: path, errno: .noSuchFileOrDirectory) }
            return link
        }
        return try user == geteuid() ? read() : act("read", at: path, body: read)
    }

    /// Runs `body` with the user's file access rights, in a thread that exists only for this.
    fileprivate func act<Value: Sendable>(
        _ operation: String,
        at path: FilePath,
        body: @escaping @Sendable () throws(FileError) -> Value
    ) throws(FileError) -> Value {
        let result = Mutex<Result<Value, FileError>?>(nil)
        try SystemThread(name: "stage-\(operation)") {
            let value = Result { () throws(FileError) in
                guard unsafe stage_act_as(user, group, groups, groups.count) == 0 else {
                    throw FileError(operation, path: path, errno: Errno(rawValue: errno))
                }
                return try body()
            }
            result.withLock { $0 = value }
        }
        .join()
        guard let result = result.withLock({ $0 }) else {
            throw FileError(operation, path: path, errno: .canceled)
        }
        return try result.get()
    }
}
