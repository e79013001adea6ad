import Foundation
import Glibc
import StageSystem

/// A connection to a server on this machine that sends and receives exactly the given bytes.
///
/// It waits at most five minutes, because other tests may delay the server. It blocks separate threads only, because
/// the server needs the threads that run tasks.
final class LoopbackClient: Sendable {
    /// Response to one request.
    struct Reply: Equatable, Sendable {
        var status = 0
        var fields: [String: String] = [:]
        var body: [UInt8] = []
        /// `true` if the body has the announced length.
        var isComplete = false
    }

    private let connection: CInt

    /// Connects to a port of the address `127.0.0.1`, or of another one whose last byte is `host`.
    init(port: Int, host: UInt8 = 1) throws {
        connection = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = (UInt32(0x7F00_0000) | UInt32(host)).bigEndian
        var limit = timeval(tv_sec: 300, tv_usec: 0)
        let status = unsafe withUnsafePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe setsockopt(
                    connection,
                    SOL_SOCKET,
                    SO_RCVTIMEO,
                    &limit,
                    socklen_t(MemoryLayout<timeval>.size)
                ) + connect(connection, address, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard status == 0 else { throw POSIXError(.ECONNREFUSED) }
    }

    deinit { close(connection) }

    /// Sends a request and reads its whole reply.
    func request(
        _ method: String,
        _ path: String,
        _ fields: [String: String] = [:]
    ) async -> Reply {
        start(method, path, fields)
        return await reply(hasBody: method != "HEAD")
    }

    /// Sends a request; ``reply(hasBody:)`` reads the response.
    func start(_ method: String, _ path: String, _ fields: [String: String] = [:]) {
        let lines = fields.map { "\($0): \($1)\r\n" }.joined()
        let bytes = Array("\(method) \(path) HTTP/1.1\r\nHost: test\r\n\(lines)\r\n".utf8)
        _ = unsafe send(connection, bytes, bytes.count, CInt(MSG_NOSIGNAL))
    }

    /// Reads the head of a reply, and its body up to its length or the end of the connection.
    func reply(hasBody: Bool = true) async -> Reply {
        await withBlockingThread { self.readReply(hasBody: hasBody) }
    }

    /// Reads the head of a reply.
    func replyHead() async -> Reply {
        await withBlockingThread { self.readHead() }
    }

    /// Reads `count` bytes, or fewer if the connection ends before.
    func receive(_ count: Int) async -> [UInt8] {
        await withBlockingThread { self.read(count) }
    }

    private func readReply(hasBody: Bool) -> Reply {
        var reply = readHead()
        let length =
            hasBody && reply.status != 304 ? Int(reply.fields["content-length"] ?? "") ?? 0 : 0
        reply.body = read(length)
        reply.isComplete = reply.body.count == length && reply.status != 0
        return reply
    }

    private func readHead() -> Reply {
        var head: [UInt8] = []
        while !head.suffix(4).elementsEqual("\r\n\r\n".utf8), let byte = read(1).first {
            head.append(byte)
        }
        let lines = String(decoding: head, as: UTF8.self).split(separator: "\r\n")
        var reply = Reply()
        guard let words = lines.first?.split(separator: " "), words.count > 1 else { return reply }
        reply.status = Int(words[1]) ?? 0
        for line in lines.dropFirst() {
            let parts = line.split(separator: ":", maxSplits: 1)
            guard parts.count == 2 else { continue }
            reply.fields[parts[0].lowercased()] = parts[1].trimmingCharacters(in: .whitespaces)
        }
        return reply
    }

    private func read(_ count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: min(max(count, 1), 1 << 16))
        while bytes.count < count {
            let received = unsafe recv(
                connection,
                &buffer,
                min(buffer.count, count - bytes.count),
                0
            )
            guard received > 0 else { break }
            bytes += buffer[..<received]
        }
        return bytes
    }
}
