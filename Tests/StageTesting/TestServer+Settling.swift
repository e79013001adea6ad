import Glibc
import Testing

extension TestServer {
    /// Returns when the requests of all clients are counted, and the bytes that were sent to them; all clients must have ended.
    ///
    /// The thread of a connection may read the request only after its client was killed.
    package func settle() async throws {
        let probe = try #require(Socket.connect(toPort: port), "the server does not listen")
        defer { close(probe) }
        // Without a request, the server closes the connection. It accepts connections in the order in which they were made.
        shutdown(probe, CInt(SHUT_WR))
        try await poll("the server accepts no connection") {
            var byte: UInt8 = 0
            return unsafe recv(probe, &byte, 1, CInt(MSG_DONTWAIT)) == 0
        }
        try await poll("a client is connected") { !hasConnections }
    }
}
