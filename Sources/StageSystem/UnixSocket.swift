import CLinux
import Glibc
package import SystemPackage

/// A stream socket to another process on this machine (unix(7)).
///
/// One thread may read and one may write at a time; any thread may shut it down.
package final class UnixSocket: Sendable {
    /// The path of the socket; for messages.
    package let path: FilePath
    private let descriptor: FileDescriptor

    private init(adopting descriptor: FileDescriptor, path: FilePath) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit {
        // close(2) cannot lose data: nothing is buffered on this side.
        try? descriptor.close()
    }

    /// Connects to the process that listens at `path`.
    ///
    /// With a `timeout`, the connection and each call on it fail with `EAGAIN` after that time without progress.
    ///
    /// - Throws: ``FileError`` with `ENOENT` or `ECONNREFUSED` if no process listens, and with
    ///   `ENAMETOOLONG` if the path has more than the 107 bytes that the kernel takes.
    package static func connect(
        to path: FilePath,
        timeout: Duration? = nil
    ) throws(FileError) -> UnixSocket {
        let descriptor = try Directory.attempt("connect to", at: path) {
            unsafe path.withPlatformString {
                unsafe stage_connect($0, timeout.map(\.microseconds) ?? 0)
            }
        }
        return UnixSocket(adopting: FileDescriptor(rawValue: descriptor), path: path)
    }

    /// Returns the user id of the listening process, as of the time when it began to listen (`SO_PEERCRED`,
    /// unix(7)).
    package func peer() throws(FileError) -> UInt32 {
        var user: uid_t = 0
        try Directory.attempt("inspect the peer of", at: path) {
            unsafe stage_peer_user(descriptor.rawValue, &user)
        }
        return user
    }

    /// Sets the time after which a call without progress fails with `EAGAIN`.
    package func setTimeout(_ timeout: Duration) throws(FileError) {
        try Directory.attempt("set up", at: path) {
            stage_set_timeout(descriptor.rawValue, timeout.microseconds)
        }
    }

    /// Sends all bytes, and waits while the receiver's buffer is full.
    package func send(_ bytes: [UInt8]) throws(FileError) {
        var sent = 0
        while sent < bytes.count {
            let count = try Directory.attempt("write to", at: path) {
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

    /// Waits for bytes and returns at most 64 KiB of them; none at the end of the stream.
    package func receive() throws(FileError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 64 << 10)
        let count = try Directory.attempt("read from", at: path) {
            unsafe CInt(recv(descriptor.rawValue, &bytes, bytes.count, 0))
        }
        bytes.removeLast(bytes.count - Int(count))
        return bytes
    }

    /// Makes the kernel refuse open files that others send to `socket` or, if it listens, to connections that are made to
    /// it from now on (`SO_PASSRIGHTS`, Linux 6.16); does nothing on older kernels.
    package static func refuseFiles(sentTo socket: CInt) { stage_refuse_files(socket) }

    /// The option of ``refuseFiles(sentTo:)``, for sockets whose descriptor other code has.
    package static let passesFiles: CInt = SO_PASSRIGHTS

    /// Shuts the stream down in both directions; a waiting ``receive()`` returns at once.
    package func shutDown() {
        // Fails if the other side has closed the stream already, which has the same effect.
        _ = shutdown(descriptor.rawValue, CInt(SHUT_RDWR))
    }
}

extension Duration {
    /// The duration in microseconds, rounded up, and at least one, since the kernel takes none for no limit.
    fileprivate var microseconds: Int64 {
        let (seconds, attoseconds) = sleepable.components
        let attosecondsPerMicrosecond: Int64 = 1_000_000_000_000
        let rest = (attoseconds + attosecondsPerMicrosecond - 1) / attosecondsPerMicrosecond
        return max(seconds * 1_000_000 + rest, 1)
    }
}
