import Glibc

/// Downloads over HTTP/1.0 from a server on this machine, such as that of the conformance suite.
enum LoopbackHTTP {
    /// Returns the body of a response with status 200, or `nil` for 403 and 404.
    static func get(_ url: String, limit: Int) throws -> [UInt8]? {
        let prefix = "http://"
        guard url.hasPrefix(prefix) else {
            throw ClientError("expected an http URL, found '\(url)'")
        }
        let rest = url.dropFirst(prefix.count)
        let slash = rest.firstIndex(of: "/") ?? rest.endIndex
        let parts = rest[..<slash].split(separator: ":")
        guard parts.count == 2, let port = UInt16(parts[1]) else {
            throw ClientError("expected a host and a port in '\(url)'")
        }
        let socket = try connect(port: port)
        defer { close(socket) }
        try send("GET \(rest[slash...]) HTTP/1.0\r\nHost: \(rest[..<slash])\r\n\r\n", to: socket)
        // The head is small; one byte more than the limit shows that the body is too long.
        let response = try receive(from: socket, limit: limit + 1 + (64 << 10))
        return try body(of: response, url: url, limit: limit)
    }

    private static func connect(port: UInt16) throws -> CInt {
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let status = unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                unsafe Glibc.connect(
                    descriptor,
                    pointer,
                    socklen_t(MemoryLayout<sockaddr_in>.size)
                )
            }
        }
        guard status == 0 else {
            close(descriptor)
            throw ClientError("no connection to port \(port)")
        }
        return descriptor
    }

    private static func send(_ text: String, to socket: CInt) throws {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = unsafe rest.withUnsafeBytes { buffer in
                unsafe write(socket, buffer.baseAddress, buffer.count)
            }
            guard count > 0 else { throw ClientError("the connection broke") }
            rest = rest.dropFirst(count)
        }
    }

    private static func receive(from socket: CInt, limit: Int) throws -> [UInt8] {
        var response: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        while response.count < limit {
            let count = unsafe buffer.withUnsafeMutableBytes { buffer in
                unsafe read(socket, buffer.baseAddress, buffer.count)
            }
            guard count >= 0 else { throw ClientError("the connection broke") }
            if count == 0 { break }
            response += buffer.prefix(count)
        }
        return response
    }

    private static func body(of response: [UInt8], url: String, limit: Int) throws -> [UInt8]? {
        guard let end = response.firstRange(of: Array("\r\n\r\n".utf8)) else {
            throw ClientError("'\(url)' answers without a head")
        }
        let head = String(decoding: response[..<end.lowerBound], as: UTF8.self)
        switch head.split(separator: " ").dropFirst().first {
        case "200": return Array(response[end.upperBound...].prefix(limit + 1))
        case "403", "404": return nil
        case let status: throw ClientError("'\(url)' answers with status \(status ?? "none")")
        }
    }
}

/// Text for the standard streams.
enum FileHandleText {
    static func standardError(_ text: String) {
        let bytes = Array(text.utf8)
        _ = unsafe write(STDERR_FILENO, bytes, bytes.count)
    }
}
