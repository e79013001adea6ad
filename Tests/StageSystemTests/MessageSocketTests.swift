import Glibc
import StageSystem
import SystemPackage
import Testing

struct MessageSocketTests {
    /// Sends one end of a new pair in a message, and returns the other.
    private func sendEnd(
        over socket: MessageSocket,
        with bytes: [UInt8] = []
    ) throws -> MessageSocket {
        let (kept, sent) = try MessageSocket.pair()
        try socket.send(bytes, files: [sent.descriptor])
        return kept
    }

    @Test func filesOfAnEmptyMessageAreClosed() throws {
        let (ours, theirs) = try MessageSocket.pair()
        let kept = try sendEnd(over: theirs)
        let message = try ours.receive()
        #expect(message == nil)
        // No process has the other end open, except one that is being started, until it executes its program.
        var request = pollfd(fd: kept.descriptor.rawValue, events: 0, revents: 0)
        #expect(unsafe poll(&request, 1, 300_000) == 1)
        #expect(request.revents & Int16(POLLHUP) != 0)
    }

    @Test func aReceiverOfBytesAloneGetsNoFile() throws {
        let (ours, theirs) = try MessageSocket.pair()
        try theirs.send([1, 2])
        let bytes = try ours.receiveBytes()
        #expect(bytes == [1, 2])
        let kept = try sendEnd(over: theirs, with: [3])
        let problem = #expect(throws: FileError.self) { _ = try ours.receiveBytes() }
        #expect(problem?.errno == Errno(rawValue: EMSGSIZE))
        var request = pollfd(fd: kept.descriptor.rawValue, events: 0, revents: 0)
        #expect(unsafe poll(&request, 1, 300_000) == 1)
        #expect(request.revents & Int16(POLLHUP) != 0)
        theirs.finish()
        let end = try ours.receiveBytes()
        #expect(end == nil)
    }

    private static func knowsOption() throws -> Bool {
        let (ours, _) = try MessageSocket.pair()
        var value: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        return unsafe getsockopt(
            ours.descriptor.rawValue,
            SOL_SOCKET,
            UnixSocket.passesFiles,
            &value,
            &size
        ) == 0
    }

    @Test(.enabled("Linux 6.16 or later refuses files", { try knowsOption() }))
    func filesThatAreRefusedAreNotSent() throws {
        let (ours, theirs) = try MessageSocket.pair()
        ours.refuseFiles()
        let problem = #expect(throws: FileError.self) { _ = try sendEnd(over: theirs, with: [1]) }
        #expect(problem?.errno == .notPermitted)
        try theirs.send([2])
        let bytes = try ours.receiveBytes()
        #expect(bytes == [2])
    }
}
