import NIOCore
import StageControl
import StageSystem

/// Connection of a client; a ``ClientDeadlineHandler`` closes it when the client exceeds a time limit.
final class ClientConnection: Sendable {
    let peer: PeerCredentials
    private let id: Int
    private let channel: any Channel
    private let limiter: ConnectionLimiter

    init(id: Int, peer: PeerCredentials, channel: any Channel, limiter: ConnectionLimiter) {
        self.id = id
        self.peer = peer
        self.channel = channel
        self.limiter = limiter
    }

    /// Returns a handle of the connected process.
    func process() async -> PeerProcess { await PeerProcess(of: channel, credentials: peer) }

    /// Ends a request and waits for the next one on this connection.
    func endRequest() {
        limiter.end(id)
        channel.pipeline.fireUserInboundEventTriggered(ClientDeadlineHandler.RequestEnded())
    }

    /// Waits until the request is admitted among the requests of its user, after it has arrived completely.
    func waitForAdmission() async throws(ControlRefusal) {
        guard await limiter.begin(id) else {
            throw ControlRefusal(.unavailable, message: "the client has disconnected")
        }
    }

    /// Reserves memory for a request body of `bytes`, as received so far.
    func reserveMemory(body bytes: Int) throws(ControlRefusal) {
        guard limiter.reserveMemory(bytes, by: id) else {
            throw ControlRefusal(
                .unavailable,
                message:
                    "your concurrent requests need too much memory: repeat this one after others have ended"
            )
        }
    }

    /// Converts the request into an event stream.
    func beginStream() throws(ControlRefusal) {
        guard limiter.stream(id) else {
            throw ControlRefusal(
                .quota,
                message: "your programs have too many event streams open: close some"
            )
        }
    }

    /// Calls `body` when the connection closes.
    func whenClosed(_ body: @escaping @Sendable () -> Void) {
        channel.closeFuture.whenComplete { _ in body() }
    }
}
