import HummingbirdCore
import Logging
import NIOCore
import NIOPosix
import StageModel
import StageWebSocket

/// Connection of the origin: HTTP, or WebSocket if the first request is for the echo endpoint.
struct EchoChannel: ServerChildChannel {
    /// Protocol that the first request of a connection selected.
    enum Selection: Sendable {
        case http(HTTP1Channel.Value)
        case echo(NIOAsyncChannel<ByteBuffer, ByteBuffer>, HTTPHead)
    }

    /// Connection whose first request may not have arrived yet.
    struct Value: ServerChildChannelValue {
        let channel: any Channel
        let selection: EventLoopFuture<Selection>
    }

    let http: HTTP1Channel
    let idleLimit: Duration
    let admission: EchoAdmission
    let onAccess: (@Sendable (AccessRecord) -> Void)?

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Value> {
        channel.eventLoop.makeCompletedFuture {
            let promise = channel.eventLoop.makePromise(of: Selection.self)
            let detector = EchoDetector(http: http, logger: logger, promise: promise)
            try channel.pipeline.syncOperations.addHandler(detector)
            return Value(channel: channel, selection: promise.futureResult)
        }
    }

    func handle(value: Value, logger: Logger) async {
        do {
            let selection = try await withTaskCancellationHandler {
                try await value.selection.get()
            } onCancel: {
                value.channel.close(promise: nil)
            }
            switch selection {
            case .http(let channel):
                await http.handle(value: channel, logger: logger)
            case .echo(let channel, let request):
                let connection = EchoConnection(idleLimit: idleLimit, admission: admission)
                let record = await connection.run(over: channel, request: request)
                onAccess?(record)
            }
        } catch {
            // The connection ended before its first request.
            logger.trace("no request", metadata: ["origin.reason": "\(error)"])
        }
    }
}

/// Reads the first request of a connection, and sets up the pipeline for it.
///
/// Buffers at most a request head, and only while its start matches the echo endpoint's path.
final class EchoDetector: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private static let start = Array("GET /.stagepack/echo".utf8)

    private let http: HTTP1Channel
    private let logger: Logger
    private let promise: EventLoopPromise<EchoChannel.Selection>
    private var handshake = ServerHandshake()
    private var input: [UInt8] = []
    private var hasDecided = false

    init(
        http: HTTP1Channel,
        logger: Logger,
        promise: EventLoopPromise<EchoChannel.Selection>
    ) {
        self.http = http
        self.logger = logger
        self.promise = promise
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !hasDecided else { return context.fireChannelRead(data) }
        let bytes = Array(unwrapInboundIn(data).readableBytesView)
        let wasEcho = isForEcho == true
        input += bytes
        guard let isForEcho else { return }
        guard isForEcho else { return selectHTTP(context) }
        do throws(WebSocketError) {
            let new = wasEcho ? bytes : input
            guard let (head, rest) = try handshake.receive(new.span) else { return }
            selectEcho(context, head: head, rest: rest)
        } catch {
            // The HTTP server reports the error of an invalid head.
            selectHTTP(context)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // After this handler is removed, HTTP's own handlers receive these events. Before, nothing else would close a
        // connection whose client ends its input without a request.
        let hasEnded = !hasDecided && event as? ChannelEvent == .inputClosed
        if event is ChannelShouldQuiesceEvent || hasEnded { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }

    /// `true` if the request is for the echo endpoint; `nil` if more input is needed.
    private var isForEcho: Bool? {
        let start = Self.start
        guard input.count > start.count else {
            return start.starts(with: input) ? nil : false
        }
        let next = input[start.count]
        return input.starts(with: start)
            && (next == UInt8(ascii: " ") || next == UInt8(ascii: "?"))
    }

    private func end() {
        guard !hasDecided else { return }
        hasDecided = true
        promise.fail(ChannelError.eof)
    }

    private func selectHTTP(_ context: ChannelHandlerContext) {
        hasDecided = true
        let buffer = ByteBuffer(bytes: input)
        input = []
        promise.completeWith(
            http.setup(channel: context.channel, logger: logger).map { .http($0) }
        )
        context.fireChannelRead(wrapInboundOut(buffer))
        context.fireChannelReadComplete()
        context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
    }

    private func selectEcho(
        _ context: ChannelHandlerContext,
        head: HTTPHead,
        rest: [UInt8]
    ) {
        hasDecided = true
        input = []
        do {
            let channel = try NIOAsyncChannel<ByteBuffer, ByteBuffer>(
                wrappingChannelSynchronously: context.channel,
                configuration: .init(isOutboundHalfClosureEnabled: true)
            )
            promise.succeed(.echo(channel, head))
        } catch {
            return promise.fail(error)
        }
        guard !rest.isEmpty else { return }
        context.fireChannelRead(wrapInboundOut(ByteBuffer(bytes: rest)))
        context.fireChannelReadComplete()
    }
}
