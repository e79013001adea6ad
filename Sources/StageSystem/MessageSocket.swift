import CLinux
import Glibc
public import SystemPackage

/// One end of a pair of sockets that carry messages and open files between two processes.
///
/// `SOCK_SEQPACKET` keeps the borders of messages, so a message arrives whole or not at all.
public final class MessageSocket: Sendable {
    /// The most bytes that a message has.
    public static let maximumLength = 64 << 10
    /// The most open files that a message carries.
    public static let maximumFiles = Int(STAGE_MESSAGE_FILES)

    /// The socket, owned by this value.
    public let descriptor: FileDescriptor

    /// A message, with the open files it brought, which the receiver owns.
    public struct Message: Sendable {
        /// The bytes of the message.
        public var bytes: [UInt8]
        /// The open files.
        public var files: [FileDescriptor]
    }

    /// Takes over an open socket.
    public init(adopting descriptor: FileDescriptor) { self.descriptor = descriptor }

    deinit {
        // Nothing is buffered on this side that close(2) could lose.
        try? descriptor.close()
    }

    /// Makes two sockets that are connected to each other.
    public static func pair() throws(FileError) -> (MessageSocket, MessageSocket) {
        var sockets: (CInt, CInt) = (-1, -1)
        _ = try unsafe withUnsafeMutablePointer(to: &sockets) { pair throws(FileError) in
            try unsafe pair.withMemoryRebound(to: CInt.self, capacity: 2) {
                pair throws(FileError) in
                try Directory.attempt("connect", "socket") { unsafe stage_socket_pair(pair) }
            }
        }
        return (
            MessageSocket(adopting: FileDescriptor(rawValue: sockets.0)),
            MessageSocket(adopting: FileDescriptor(rawValue: sockets.1))
        )
    }

    /// Sends a message with copies of `files`, and waits while the other side has no room for it.
    public func send(_ bytes: [UInt8], files: [FileDescriptor] = []) throws(FileError) {
        precondition(bytes.count <= Self.maximumLength && files.count <= Self.maximumFiles)
        let numbers = files.map(\.rawValue)
        try Directory.attempt("send to", "socket") {
            unsafe CInt(
                stage_send(descriptor.rawValue, bytes, bytes.count, numbers, numbers.count)
            )
        }
    }

    /// Sends no more: the other side receives the end after what was sent.
    public func finish() {
        // It fails where the other side has gone, which is as good.
        _ = shutdown(descriptor.rawValue, CInt(SHUT_WR))
    }

    /// Ends the conversation: a thread that waits for a message here is told that there are no more.
    public func end() {
        // It fails where the other side has gone, which is as good.
        _ = shutdown(descriptor.rawValue, CInt(SHUT_RDWR))
    }

    /// Waits for a message and returns it, or `nil` once the other side has closed its socket.
    public func receive() throws(FileError) -> Message? {
        var numbers = [CInt](repeating: -1, count: Self.maximumFiles)
        var count = 0
        // Not cleared first: most messages are short, and a decoder is a process whose pages are its own only once written.
        let bytes = try unsafe withUnsafeTemporaryAllocation(
            byteCount: Self.maximumLength,
            alignment: 16
        ) { buffer throws(FileError) in
            let length = try Directory.attempt("receive from", "socket") {
                unsafe CInt(
                    stage_receive(
                        descriptor.rawValue,
                        buffer.baseAddress,
                        buffer.count,
                        &numbers,
                        &count
                    )
                )
            }
            return unsafe [UInt8](UnsafeRawBufferPointer(rebasing: buffer[..<Int(length)]))
        }
        guard !bytes.isEmpty else { return nil }
        return Message(
            bytes: bytes,
            files: numbers[..<count].map { FileDescriptor(rawValue: $0) }
        )
    }
}
