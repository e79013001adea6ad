import CSystemd
import Glibc
import StageSystem
import SystemPackage

/// Socket that clients connect to.
enum ListeningSocket {
    /// Returns the socket that the service manager opened (sd_listen_fds(3)), or `nil` if it opened none.
    static func inherited() -> CInt? {
        sd_listen_fds(0) >= 1 ? SD_LISTEN_FDS_START : nil
    }

    /// Returns the path of a listening socket, or `nil` if it has none.
    static func path(of socket: CInt) -> FilePath? {
        var address = sockaddr_un()
        let size = MemoryLayout<sockaddr_un>.size
        // Keeps the last zero byte, so that the name is terminated within the structure.
        var length = socklen_t(size - 1)
        let status = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe getsockname(socket, address, &length)
            }
        }
        guard status == 0 else { return nil }
        let bytes = unsafe withUnsafeBytes(of: &address.sun_path) { unsafe Array($0) }
        let name = bytes.prefix { $0 != 0 }
        return name.isEmpty ? nil : FilePath(String(decoding: name, as: UTF8.self))
    }

    /// Listens at `path`, replacing the socket of a daemon that has ended.
    ///
    /// If `isShared`, every user may connect; credentials decide about access.
    static func listen(_ path: FilePath, isShared: Bool) throws(DaemonError) -> CInt {
        func fault() -> DaemonError { .socket(path, Errno(rawValue: errno).description) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        // The socket gets its final name only after listen(2), so that no client is refused in between.
        let bytes = Array("\(path)~".utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw .socket(path, "the path of a socket has at most 106 bytes")
        }
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: bytes) }
        let directory: Directory
        let folder: FileStatus
        guard let final = path.lastComponent, let name = FilePath.Component("\(final)~") else {
            throw .socket(path, "it is not the name of a file")
        }
        do throws(FileError) {
            directory = try Directory.make(path.removingLastComponent())
            folder = try directory.status()
            try directory.remove(name)
        } catch {
            throw .file(error)
        }
        if let danger = folder.otherChanger {
            throw .socket(path, "\(danger): name a socket in a directory of your own")
        }
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let socket = socket(AF_UNIX, kind | CInt(SOCK_NONBLOCK.rawValue), 0)
        guard socket >= 0 else { throw fault() }
        let status = unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe bind(socket, address, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard status == 0, Glibc.listen(socket, 4096) == 0 else {
            defer { close(socket) }
            throw fault()
        }
        do throws(FileError) {
            // Relative to the open directory, since another user may change the path.
            try directory.setMode(
                ofSocket: name,
                to: FilePermissions(rawValue: isShared ? 0o666 : 0o600)
            )
            // The state directory's lock excludes other daemons, so an existing socket belongs to none.
            try directory.rename(FilePath(name), over: final)
        } catch {
            close(socket)
            throw .file(error)
        }
        return socket
    }
}

extension FileStatus {
    /// The reason why other users than this one and root may replace files of this directory, as a fragment; `nil`
    /// if they may not.
    fileprivate var otherChanger: String? {
        let user = geteuid()
        guard owner == 0 || owner == user else { return "its directory belongs to user \(owner)" }
        let isSticky = mode & 0o1000 != 0
        // A user's group is often their own.
        let writers: UInt32 = user == 0 ? 0o022 : 0o002
        return mode & writers != 0 && !isSticky ? "other users may write in its directory" : nil
    }
}
