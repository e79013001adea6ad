import NIOCore
import NIOHTTPTypes

/// Closes a connection whose client takes too long to send a request, or to read a response, or sends an invalid
/// request.
///
/// A request has a time limit for its head, which is also the limit of an idle connection, and another one for its body.
/// Time counts only while the daemon waits for the client: while the channel reads, and while more of the response is
/// unwritten than the channel may buffer. A busy daemon closes no connection because of its own delay, since the event
/// loop receives the bytes that have arrived before it runs timers.
final class ClientDeadlineHandler: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    /// User event of the channel: the response to a request is complete.
    struct RequestEnded: Sendable {}

    /// Time limit for the head of a request, and for an idle connection.
    private static let headTime = TimeAmount.seconds(20)
    /// Time limit for the body of a request.
    private static let bodyTime = TimeAmount.seconds(30)
    /// Time limit for the client to read as much of a response as the channel may buffer.
    private static let readTime = TimeAmount.seconds(30)

    /// Time limit for the client to read the refusal of an invalid request.
    private static let refusalTime = TimeAmount.seconds(5)

    /// Requests whose head has arrived and whose response is not complete.
    private var requests = 0
    /// Time that the client has left to send; `nil` while it has nothing to send.
    private var left: TimeAmount? = headTime
    /// Start of the current wait for bytes; `nil` while the channel does not read.
    private var waitsSince: NIODeadline?
    private var requestTimer: Scheduled<Void>?
    private var readTimer: Scheduled<Void>?
    private var refusalTimer: Scheduled<Void>?

    func read(context: ChannelHandlerContext) {
        if waitsSince == nil {
            waitsSince = context.eventLoop.now
            startRequestTimer(context)
        }
        context.read()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        stopRequestTimer(context)
        switch unwrapInboundIn(data) {
        case .head:
            requests += 1
            left = Self.bodyTime
        case .body: break
        // A request may have been refused before its body has arrived.
        case .end: left = requests == 0 ? Self.headTime : nil
        }
        startRequestTimer(context)
        context.fireChannelRead(data)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        stopRequestTimer(context)
        waitsSince = nil
        context.fireChannelReadComplete()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is RequestEnded {
            stopRequestTimer(context)
            requests -= 1
            // The next request may have begun to arrive.
            if requests == 0 { left = Self.headTime }
            startRequestTimer(context)
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        readTimer?.cancel()
        readTimer = context.channel.isWritable ? nil : closing(context, in: Self.readTime)
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // The channel no longer reads, so the other timers are stopped: without this one, the connection of a client that keeps
        // sending would stay open.
        if refusalTimer == nil { refusalTimer = closing(context, in: Self.refusalTime) }
        context.fireErrorCaught(error)
    }

    func channelInactive(context: ChannelHandlerContext) {
        requestTimer?.cancel()
        readTimer?.cancel()
        refusalTimer?.cancel()
        context.fireChannelInactive()
    }

    private func startRequestTimer(_ context: ChannelHandlerContext) {
        guard waitsSince != nil, let left else { return }
        requestTimer = closing(context, in: left)
    }

    /// Stops the timer, and counts the time that has passed.
    private func stopRequestTimer(_ context: ChannelHandlerContext) {
        requestTimer?.cancel()
        requestTimer = nil
        guard let since = waitsSince else { return }
        let now = context.eventLoop.now
        left = left.map { max(.nanoseconds(0), $0 - (now - since)) }
        waitsSince = now
    }

    private func closing(_ context: ChannelHandlerContext, in time: TimeAmount) -> Scheduled<Void> {
        context.eventLoop.scheduleTask(in: time) { [channel = context.channel] in
            channel.close(promise: nil)
        }
    }
}
