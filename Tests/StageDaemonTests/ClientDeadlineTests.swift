import HTTPTypes
import NIOCore
import NIOEmbedded
import NIOHTTPTypes
import Testing

@testable import StageDaemon

/// The time limits of clients, with a clock that the test advances.
struct ClientDeadlineTests {
    private let channel: EmbeddedChannel

    init() throws {
        channel = EmbeddedChannel(handler: ClientDeadlineHandler())
        try channel.connect(to: SocketAddress(unixDomainSocketPath: "/x")).wait()
        channel.read()
    }

    private func pass(_ seconds: Int64) {
        channel.embeddedEventLoop.advanceTime(by: .seconds(seconds))
    }

    /// Expects the channel to be open one second before the time limit, and closed at it.
    private func expectClosing(
        after seconds: Int64,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        pass(seconds - 1)
        #expect(channel.isActive, sourceLocation: sourceLocation)
        pass(1)
        #expect(!channel.isActive, sourceLocation: sourceLocation)
    }

    /// Delivers a part of a request; the channel does not read more by itself.
    private func receive(_ part: HTTPRequestPart) throws { try channel.writeInbound(part) }

    private static let head = HTTPRequestPart.head(
        HTTPRequest(method: .post, scheme: nil, authority: "x", path: "/v1/sessions/s/tasks")
    )
    private static let piece = HTTPRequestPart.body(ByteBuffer(string: "{"))

    @Test func anIdleConnectionIsClosed() {
        expectClosing(after: 20)
    }

    @Test func aBodyThatComesByPiecesHasOneLimit() throws {
        try receive(Self.head)
        for _ in 0..<2 {
            channel.read()
            pass(10)
            try receive(Self.piece)
        }
        channel.read()
        expectClosing(after: 10)
    }

    @Test func aRequestThatIsWholeMayWaitForItsResponse() throws {
        try receive(Self.head)
        try receive(.end(nil))
        channel.read()
        pass(3600)
        #expect(channel.isActive)
        channel.pipeline.fireUserInboundEventTriggered(ClientDeadlineHandler.RequestEnded())
        expectClosing(after: 20)
    }

    @Test func timeInWhichTheDaemonDoesNotReadIsNotTheClients() throws {
        try receive(Self.head)
        pass(3600)
        #expect(channel.isActive)
        channel.read()
        expectClosing(after: 30)
    }

    @Test func aRequestThatWasRefusedBeforeItsEndLeavesTheLimitOfAnIdleConnection() throws {
        try receive(Self.head)
        channel.pipeline.fireUserInboundEventTriggered(ClientDeadlineHandler.RequestEnded())
        channel.read()
        pass(5)
        try receive(.end(nil))
        channel.read()
        expectClosing(after: 20)
    }

    @Test func theNextRequestMayArriveBeforeTheResponse() throws {
        for _ in 0..<2 {
            try receive(Self.head)
            try receive(.end(nil))
        }
        channel.read()
        channel.pipeline.fireUserInboundEventTriggered(ClientDeadlineHandler.RequestEnded())
        pass(3600)
        #expect(channel.isActive)
        channel.pipeline.fireUserInboundEventTriggered(ClientDeadlineHandler.RequestEnded())
        pass(20)
        #expect(!channel.isActive)
    }

    @Test func aClientThatReadsNothingIsCutOff() throws {
        try receive(Self.head)
        try receive(.end(nil))
        channel.isWritable = false
        channel.pipeline.fireChannelWritabilityChanged()
        pass(29)
        channel.isWritable = true
        channel.pipeline.fireChannelWritabilityChanged()
        #expect(channel.isActive)
        channel.isWritable = false
        channel.pipeline.fireChannelWritabilityChanged()
        pass(30)
        #expect(!channel.isActive)
    }
}
