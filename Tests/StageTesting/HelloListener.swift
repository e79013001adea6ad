import Foundation
import Glibc
import Synchronization
import SystemPackage
import Testing

/// A listener on this machine that keeps the first bytes of its first connection and does not respond.
package final class HelloListener: Sendable {
    /// The port.
    package let port: Int
    private let socket: Int32
    private let bytes = Mutex<[UInt8]>([])

    /// Begins to listen.
    package init() throws {
        let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        self.socket = socket
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe bind(socket, address, size) == 0 && listen(socket, 8) == 0
                    && getsockname(socket, address, &size) == 0
            }
        }
        try #require(isBound, "\(Errno(rawValue: errno))")
        port = Int(UInt16(bigEndian: address.sin_port))
        Foundation.Thread.detachNewThread { [self] in
            let connection = accept(socket, nil, nil)
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = unsafe read(connection, &buffer, buffer.count)
            bytes.withLock { $0 = Array(buffer.prefix(max(count, 0))) }
            Glibc.close(connection)
        }
    }

    /// The bytes of the first connection; empty before it.
    package var hello: [UInt8] { bytes.withLock { $0 } }

    /// Ends the listener.
    package func close() { Glibc.close(socket) }
}
