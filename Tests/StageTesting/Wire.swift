import Glibc

/// A connection on which a request was received, for a response that is written byte by byte.
///
/// The server closes the connection when the script that received the wire returns.
package struct Wire: Sendable {
    /// The request.
    package let request: RequestHead
    private let socket: Socket

    init(_ socket: Socket, _ request: RequestHead) {
        self.socket = socket
        self.request = request
    }

    /// Sends bytes, and returns whether the client received them.
    @discardableResult
    package func send(_ bytes: [UInt8]) -> Bool { socket.send(bytes) }

    /// Sends text, and returns whether the client received it.
    @discardableResult
    package func send(_ text: String) -> Bool { socket.send(Array(text.utf8)) }

    /// Sends bytes one by one, with a pause after each, until the client disconnects.
    package func drip(_ bytes: [UInt8], pause: UInt32) {
        for byte in bytes {
            guard socket.send([byte]) else { return }
            if pause > 0 { usleep(pause) }
        }
    }

    /// Waits for bytes that the client sends after its request; returns none at the end of the connection.
    package func receive() -> [UInt8] { socket.receive() }

    /// Sends nothing for a while.
    package func pause(milliseconds: UInt32) { usleep(milliseconds * 1000) }

    /// Sends nothing more until the client disconnects.
    package func waitForEnd() { socket.waitForEnd() }

    /// Sends the end of the stream, and reads until the client has closed the connection.
    package func end() { socket.lingerOn() }

    /// Forwards bytes to and from a port of this machine, as a proxy does for `CONNECT`, until one side ends.
    package func tunnel(toPort port: Int) {
        guard let server = Socket.connect(toPort: port) else { return }
        defer { close(server) }
        socket.exchange(with: Socket(server))
    }

    /// Resets the connection at its end, instead of an orderly close.
    package func reset() { socket.resetOnClose() }
}

extension Answer {
    /// Returns a response that `script` sends.
    package static func script(_ script: @escaping @Sendable (Wire) -> Void) -> Answer {
        Answer(content: []).with { $0.script = script }
    }
}
