import Glibc
import StageSystem
import SystemPackage
import Testing

struct MessageSocketTests {
    /// Sends one end of a new pair in an empty message, and returns the other.
    private func sendEnd(over socket: MessageSocket) throws -> MessageSocket {
        let (kept, sent) = try MessageSocket.pair()
        try socket.send([], files: [sent.descriptor])
        return kept
    }

    @Test func filesOfAnEmptyMessageAreClosed() throws {
        let (ours, theirs) = try MessageSocket.pair()
        let kept = try sendEnd(over: theirs)
        let message = try ours.receive()
        #expect(message == nil)
        // The other end is open nowhere.
        var request = pollfd(fd: kept.descriptor.rawValue, events: 0, revents: 0)
        #expect(unsafe poll(&request, 1, 10_000) == 1)
        #expect(request.revents & Int16(POLLHUP) != 0)
    }
}
