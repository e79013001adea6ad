package import FoundationEssentials
import Glibc

/// A response of the control protocol, as the bytes encode it.
package struct ControlExchange: Sendable {
    /// The status.
    package let status: Int
    /// The header fields, names in lower case.
    package let fields: [String: String]
    /// The body, without the framing of chunks.
    package let body: Data

    /// The daemon did not respond.
    package struct Silence: Error {}

    /// Sends a request to the daemon at `path`, and reads the response to the end of the connection.
    package init(_ request: String, body: String? = nil, at path: String) throws {
        guard let connection = Socket.connect(to: path) else { throw Silence() }
        defer { close(connection) }
        _ = fcntl(connection, F_SETFL, 0)
        var socket = Socket(connection)
        var head = "\(request) HTTP/1.1\r\nHost: stagepack\r\nConnection: close\r\n"
        if let body {
            head += "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n"
        }
        guard socket.send(Array("\(head)\r\n\(body ?? "")".utf8)), let text = socket.readHead(),
            let status = text.split(separator: " ").dropFirst().first.flatMap({ Int($0) })
        else { throw Silence() }
        self.status = status
        var fields: [String: String] = [:]
        for line in text.split(separator: "\r\n").dropFirst() {
            guard let colon = line.firstIndex(of: ":") else { continue }
            fields[line[..<colon].lowercased()] = String(
                line[line.index(after: colon)...].drop { $0 == " " }
            )
        }
        self.fields = fields
        if fields["transfer-encoding"] == "chunked" {
            self.body = Data(Self.withoutChunks(socket.read(.max)))
        } else {
            self.body = Data(socket.read(Int(fields["content-length"] ?? "") ?? 0))
        }
    }

    private static func withoutChunks(_ bytes: [UInt8]) -> [UInt8] {
        var content: [UInt8] = []
        var rest = bytes[...]
        while let end = rest.firstIndex(of: UInt8(ascii: "\r")) {
            let digits = String(decoding: rest[..<end], as: UTF8.self)
            guard let count = Int(digits, radix: 16), count > 0 else { break }
            rest = rest[end...].dropFirst(2)
            content += rest.prefix(count)
            rest = rest.dropFirst(count + 2)
        }
        return content
    }
}
