import CLinux
import Glibc
public import SystemPackage

/// One end of a socket pair that carries messages and file descriptors between two processes.
///
/// `SOCK_SEQPACKET` preserves message boundaries: a message arrives whole or not at all.
public final class MessageSocket: Sendable {
    /// The maximum number of bytes of a message.
    public static let maximumLength = 64 << 10
    /// The maximum number of file descriptors of a message.
    public static let maximumFiles = Int(STAGE_MESSAGE_FILES)

    /// The socket, owned by this value.
    public let descriptor: FileDescriptor

    /// A message with its file descriptors, which the receiver closes.
    public struct Message: Sendable {
        /// The bytes of the message.
        public var bytes: [UInt8]
        /// The file descriptors.
        public var files: [FileDescriptor]
    }

    /// Takes ownership of an open socket.
    public init(adopting descriptor: FileDescriptor) { self.descriptor = descriptor }

    deinit {
        // close(2) cannot lose data: nothing is buffered on this side.
        try? descriptor.close()
    }

    /// Creates two connected sockets.
    public static func pair() throws(FileError) -> (MessageSocket, MessageSocket) {
        var sockets: [CInt] = [-1, -1]
        try Directory.attempt("connect", at: "socket") { unsafe stage_socket_pair(&sockets) }
        return (
            MessageSocket(adopting: FileDescriptor(rawValue: sockets[0])),
            MessageSocket(adopting: FileDescriptor(rawValue: sockets[1]))
        )
    }

    /// Sends a message with duplicates of `files`, and waits while the receiver's buffer is full.
    public func send(_ bytes: [UInt8], files: [FileDescriptor] = []) throws(FileError) {
        precondition(bytes.count <= Self.maximumLength && files.count <= Self.maximumFiles)
        let numbers = files.map(\.rawValue)
        try Directory.attempt("send to", at: "socket") {
            unsafe CInt(
                stage_send(descriptor.rawValue, bytes, bytes.count, numbers, numbers.count)
            )
        }
    }

    /// Closes the sending direction: the other side receives all messages, then the end.
    public func finish() {
        // Fails if the other side is closed already, which has the same effect.
        _ = shutdown(descriptor.rawValue, CInt(SHUT_WR))
    }

    /// Closes both directions, which wakes a thread that waits in ``receive()``.
    public func end() {
        // Fails if the other side is closed already, which has the same effect.
        _ = shutdown(descriptor.rawValue, CInt(SHUT_RDWR))
    }

    /// Waits for a message and returns it, or `nil` once the other side has closed its socket or sent an empty
    /// message.
    public func receive() throws(FileError) -> Message? {
        var numbers = [CInt](repeating: -1, count: Self.maximumFiles)
        var count = 0
        let bytes = try unsafe receive { buffer in
            unsafe stage_receive(
                descriptor.rawValue,
                buffer.baseAddress,
                buffer.count,
                &numbers,
                &count
            )
        }
        let files = numbers[..<count].map { FileDescriptor(rawValue: $0) }
        guard !bytes.isEmpty else {
            // An empty message may carry files. Closing them loses no data: nothing was written to them.
            for file in files { try? file.close() }
            return nil
        }
        return Message(bytes: bytes, files: files)
    }

    /// Waits for a message of a sender that is not trusted, and returns its bytes, or `nil` once the other side has
    /// closed its socket or sent an empty message.
    ///
    /// Files that the sender attaches never become descriptors of this process, whose close(2) may wait without end
    /// (fuse(4)).
    ///
    /// - Throws: ``FileError`` also for a message with files.
    package func receiveBytes() throws(FileError) -> [UInt8]? {
        let bytes = try unsafe receive { buffer in
            unsafe stage_receive_bytes(descriptor.rawValue, buffer.baseAddress, buffer.count)
        }
        return bytes.isEmpty ? nil : bytes
    }

    /// Returns the bytes of a message that `call` receives into a buffer; `call` returns their number.
    private func receive(
        _ call: (UnsafeMutableRawBufferPointer) -> Int
    ) throws(FileError) -> [UInt8] {
        // The buffer is not zeroed first: most messages are short, and pages that a decoder does not write
        // stay shared.
        try unsafe withUnsafeTemporaryAllocation(
            byteCount: Self.maximumLength,
            alignment: 16
        ) { buffer throws(FileError) in
            let length = try Directory.attempt("receive from", at: "socket") {
                unsafe CInt(call(buffer))
            }
            return unsafe [UInt8](UnsafeRawBufferPointer(rebasing: buffer[..<Int(length)]))
        }
    }

    /// Makes the kernel refuse messages with files to this end (`SO_PASSRIGHTS`, Linux 6.16); does nothing on older
    /// kernels.
    ///
    /// The kernel releases files that are not received in the receiving thread, which waits for a TCP socket with
    /// `SO_LINGER`.
    package func refuseFiles() { stage_refuse_files(descriptor.rawValue) }
}
