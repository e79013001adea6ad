import CLinux
import Glibc
public import SystemPackage

/// A stream to another process of this machine, by a socket that has a path (unix(7)).
///
/// One thread reads and one writes at a time; any thread may end the stream.
public final class UnixSocket: Sendable {
    /// The path of the socket; for messages.
    public let path: FilePath
    private let descriptor: FileDescriptor

    private init(adopting descriptor: FileDescriptor, path: FilePath) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit {
        // Nothing is buffered on this side that close(2) could lose.
        try? descriptor.close()
    }

    /// Connects to the process that listens at `path`.
    ///
    /// With `patience`, given in seconds, the connection and each call on it fail with `EAGAIN` after so
    /// long without progress.
    ///
    /// - Throws: ``FileError`` with `ENOENT` or `ECONNREFUSED` if no process listens, and with
    ///   `ENAMETOOLONG` if the path has more than the 107 bytes that the kernel takes.
    public static func connect(
        to path: FilePath,
        patience: Int = 0
    ) throws(FileError) -> UnixSocket {
        let descriptor = try Directory.attempt("connect to", path) {
            unsafe path.withPlatformString { unsafe stage_connect($0, patience) }
        }
        return UnixSocket(adopting: FileDescriptor(rawValue: descriptor), path: path)
    }

    /// Returns the user whose process listens at the other end, as the kernel recorded it when that
    /// process began to listen (`SO_PEERCRED`, unix(7)).
    public func peer() throws(FileError) -> UInt32 {
        var user: uid_t = 0
        try Directory.attempt("look at the other end of", path) {
            unsafe stage_peer_user(descriptor.rawValue, &user)
        }
        return user
    }

    /// Has each call fail with `EAGAIN` after `seconds` without a byte; 0 stands for never.
    public func setPatience(seconds: Int) throws(FileError) {
        try Directory.attempt("set up", path) { stage_set_patience(descriptor.rawValue, seconds) }
    }

    /// Sends all of the bytes, and waits while the other side has no room for them.
    public func send(_ bytes: [UInt8]) throws(FileError) {
        var sent = 0
        while sent < bytes.count {
            let count = try Directory.attempt("write to", path) {
                unsafe bytes.withUnsafeBytes { buffer in
                    let rest = unsafe UnsafeRawBufferPointer(
                        rebasing: buffer[sent...].prefix(1 << 20)
                    )
                    return unsafe CInt(
                        Glibc.send(
                            descriptor.rawValue,
                            rest.baseAddress,
                            rest.count,
                            CInt(MSG_NOSIGNAL)
                        )
                    )
                }
            }
            sent += Int(count)
        }
    }

    /// Waits for bytes and returns them, at most `limit`; none once the stream has ended.
    public func receive(upTo limit: Int = 64 << 10) throws(FileError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: limit)
        let count = try Directory.attempt("read from", path) {
            unsafe CInt(recv(descriptor.rawValue, &bytes, bytes.count, 0))
        }
        bytes.removeLast(bytes.count - Int(count))
        return bytes
    }

    /// Ends the stream in both directions: whoever waits in ``receive(upTo:)`` sees its end at once.
    public func shutDown() {
        // It fails where the other side has ended the stream already, which is as good.
        _ = shutdown(descriptor.rawValue, CInt(SHUT_RDWR))
    }
}
