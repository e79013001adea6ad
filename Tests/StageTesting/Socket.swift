import Dispatch
import Glibc
import SystemPackage

/// The few calls on sockets that a test server needs.
struct Socket {
    private let descriptor: CInt
    private var buffered: [UInt8] = []

    /// The system refused a port.
    struct Unavailable: Error {}

    init(_ descriptor: CInt) { self.descriptor = descriptor }

    /// Listens on a free port of the loopback address.
    static func listen() throws(Unavailable) -> (listener: CInt, port: Int) {
        let listener = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = unsafe withUnsafeMutablePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe bind(listener, address, length) + Glibc.listen(listener, 512)
                    + getsockname(listener, address, &length)
            }
        }
        guard status == 0 else { throw Unavailable() }
        return (listener, Int(UInt16(bigEndian: address.sin_port)))
    }

    /// Listens at a path, and replaces an existing file.
    static func listen(at path: String) throws(Unavailable) -> CInt {
        unsafe _ = unlink(path)
        let listener = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        let status = unsafe withAddress(path) { address, length in
            unsafe bind(listener, address, length) + Glibc.listen(listener, 512)
        }
        guard status == 0 else { throw Unavailable() }
        return listener
    }

    /// Connects to a path, or returns `nil` if the connection would have to wait.
    static func connect(to path: String) -> CInt? {
        let kind = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue
        let connection = socket(AF_UNIX, CInt(kind), 0)
        let status = unsafe withAddress(path) { address, length in
            unsafe Glibc.connect(connection, address, length)
        }
        guard status == 0 else {
            close(connection)
            return nil
        }
        return connection
    }

    /// Connects to a port of the loopback address, or returns `nil` if nothing listens there.
    static func connect(toPort port: Int) -> CInt? {
        let connection = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = unsafe withUnsafePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe Glibc.connect(connection, address, length)
            }
        }
        guard status == 0 else {
            close(connection)
            return nil
        }
        return connection
    }

    private static func withAddress(
        _ path: String,
        _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt
    ) -> CInt {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { buffer in
            for (index, byte) in path.utf8.enumerated() where index < buffer.count - 1 {
                unsafe buffer[index] = byte
            }
        }
        let length = socklen_t(MemoryLayout<sockaddr_un>.size)
        return unsafe withUnsafePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe body(address, length)
            }
        }
    }

    /// Reads `count` bytes, or fewer if the connection ends before.
    mutating func read(_ count: Int) -> [UInt8] {
        while buffered.count < count {
            var bytes = [UInt8](repeating: 0, count: 64 << 10)
            let received = unsafe recv(descriptor, &bytes, bytes.count, 0)
            guard received > 0 else { break }
            buffered += bytes[..<received]
        }
        defer { buffered.removeFirst(min(count, buffered.count)) }
        return Array(buffered.prefix(count))
    }

    /// Reads up to the empty line that ends a head, or returns `nil` at the end of the connection and if the bytes begin a TLS
    /// handshake.
    mutating func readHead() -> String? {
        let mark = Array("\r\n\r\n".utf8)
        while true {
            if let end = buffered.indices.first(where: { buffered[$0...].starts(with: mark) }) {
                let head = String(decoding: buffered[..<end], as: UTF8.self)
                buffered.removeFirst(end + mark.count)
                return head
            }
            var bytes = [UInt8](repeating: 0, count: 4096)
            let count = unsafe recv(descriptor, &bytes, bytes.count, 0)
            guard count > 0 else { return nil }
            buffered += bytes[..<count]
            if buffered.first == 0x16 { return nil }
        }
    }

    /// Reads `count` bytes, or fewer at the end of the connection.
    mutating func readBody(_ count: Int) -> [UInt8] {
        while buffered.count < count {
            var bytes = [UInt8](repeating: 0, count: min(count - buffered.count, 1 << 16))
            let read = unsafe recv(descriptor, &bytes, bytes.count, 0)
            guard read > 0 else { break }
            buffered += bytes[..<read]
        }
        let body = Array(buffered.prefix(count))
        buffered.removeFirst(body.count)
        return body
    }

    /// Waits for bytes, and returns none at the end of the connection.
    func receive() -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 64 << 10)
        let count = unsafe recv(descriptor, &bytes, bytes.count, 0)
        return Array(bytes.prefix(max(count, 0)))
    }

    /// Sends all bytes, and returns whether the peer received them.
    func send(_ bytes: [UInt8]) -> Bool { send(bytes[...]) }

    /// Sends all bytes, and returns whether the peer received them.
    func send(_ bytes: ArraySlice<UInt8>) -> Bool {
        unsafe bytes.withUnsafeBytes { buffer in
            var sent = 0
            while sent < buffer.count {
                let rest = unsafe UnsafeRawBufferPointer(rebasing: buffer[sent...])
                let count = unsafe Glibc.send(
                    descriptor,
                    rest.baseAddress,
                    rest.count,
                    CInt(MSG_NOSIGNAL)
                )
                guard count > 0 else { return false }
                sent += count
            }
            return true
        }
    }

    /// Forwards bytes in both directions between two sockets until one of them ends.
    func exchange(with other: Socket) {
        let numbers = [descriptor, other.descriptor]
        while true {
            var waits = numbers.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            guard unsafe Glibc.poll(&waits, 2, -1) > 0 else { return }
            for (wait, (source, target)) in zip(waits, [(self, other), (other, self)])
            where wait.revents != 0 {
                let bytes = source.receive()
                guard !bytes.isEmpty, target.send(bytes) else { return }
            }
        }
    }

    /// Ends the sending direction.
    func endStream() { shutdown(descriptor, CInt(SHUT_WR)) }

    /// Ends the sending direction, and reads until the peer closes the connection.
    ///
    /// Closing a connection with unread bytes would reset it, and the peer could lose the bytes that were sent.
    func lingerOn() {
        endStream()
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        while unsafe recv(descriptor, &bytes, bytes.count, 0) > 0 {}
    }

    /// Resets the connection when it is closed.
    func resetOnClose() {
        var option = linger(l_onoff: 1, l_linger: 0)
        let size = socklen_t(MemoryLayout<linger>.size)
        unsafe _ = setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, size)
    }

    /// Waits until a gate is open, and returns whether it is; `false` if the peer has closed the connection before.
    func wait(for gate: Gate) -> Bool {
        while !gate.wait(within: .milliseconds(5)) {
            var byte: UInt8 = 0
            let count = unsafe recv(descriptor, &byte, 1, CInt(MSG_PEEK) | CInt(MSG_DONTWAIT))
            if count == 0 || (count < 0 && errno != EAGAIN) { return false }
        }
        return true
    }

    /// Waits until the peer, a process on this machine, has read all bytes that were sent, or has closed the connection.
    ///
    /// The kernel reports the number of bytes that the peer has not read (proc_pid_net(5)), and counts the end of
    /// the stream as one byte. The wait ends after five minutes.
    func waitUntilRead() {
        guard let own = port(ofPeer: false), let peer = port(ofPeer: true) else { return }
        // The file may lack a line while other connections end, so the result counts if it is repeated.
        var repetitions = 0
        for _ in 0..<30_000 where repetitions < 3 {
            // If the file cannot be read, the bytes count as read.
            let connections = (try? text(of: "/proc/net/tcp")) ?? ""
            let isUnread = connections.split(separator: "\n").contains { line in
                let fields = line.split(separator: " ")
                return fields.count > 4 && fields[1].hasSuffix(peer) && fields[2].hasSuffix(own)
                    && !fields[4].hasSuffix(":00000000") && !fields[4].hasSuffix(":00000001")
            }
            repetitions = isUnread ? 0 : repetitions + 1
            usleep(10_000)
        }
    }

    /// The port of one end of the connection, as `/proc/net/tcp` writes it; `nil` if the connection has ended.
    private func port(ofPeer isPeer: Bool) -> String? {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = unsafe withUnsafeMutablePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe isPeer
                    ? getpeername(descriptor, address, &length)
                    : getsockname(descriptor, address, &length)
            }
        }
        guard status == 0 else { return nil }
        let number = String(UInt16(bigEndian: address.sin_port), radix: 16, uppercase: true)
        return ":" + String(repeating: "0", count: 4 - number.count) + number
    }

    /// Waits until the peer closes the connection or sends a byte.
    func waitForEnd() {
        var byte: UInt8 = 0
        unsafe _ = recv(descriptor, &byte, 1, CInt(MSG_PEEK))
    }
}

extension Socket {
    /// Sends a whole response, and waits until the peer has received it.
    func answer(_ status: Int, _ fields: [String] = [], body: String = "") {
        let length = status == 204 ? [] : ["Content-Length: \(body.utf8.count)"]
        let lines = ["HTTP/1.1 \(status) Status"] + fields + length + ["Connection: close"]
        _ = send(Array((lines.joined(separator: "\r\n") + "\r\n\r\n" + body).utf8))
        lingerOn()
    }
}
