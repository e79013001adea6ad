import FoundationEssentials
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOPosix
import StageControl
import StageSystem

/// HTTP server on the control socket.
struct ControlServer: Sendable {
    let responder: ControlResponder
    let logger: Logger

    /// Serves clients until the task is cancelled.
    ///
    /// Takes ownership of `listener`, a listening socket.
    func run(_ listener: CInt, onReady: @Sendable () -> Void) async throws {
        UnixSocket.refuseFiles(sentTo: listener)
        let limiter = ConnectionLimiter(.current)
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AcceptThrottle())
                }
            }
            .serverChannelOption(.maxMessagesPerRead, value: 64)
            .childChannelOption(.socketOption(.so_sndbuf), value: Self.bufferSize)
            .childChannelOption(.writeBufferWaterMark, value: Self.waterMark)
            .childChannelOption(
                .recvAllocator,
                value: FixedSizeRecvByteBufferAllocator(capacity: Self.pieceSize)
            )
            // The watermark of accepted connections is above the connection limit: only the `ConnectionLimiter` refuses connections.
            .bind(
                listener,
                serverBackPressureStrategy: .init(lowWatermark: 512, highWatermark: 2048)
            ) { channel in
                setUp(channel, limiter: limiter)
            }
        onReady()
        try await withTaskCancellationHandler {
            try await withThrowingDiscardingTaskGroup { group in
                try await server.executeThenClose { clients in
                    for try await connection in clients {
                        guard let (child, value) = connection else { continue }
                        group.addTask { await child.handle(value: value, logger: logger) }
                    }
                }
                group.cancelAll()
            }
        } onCancel: {
            server.channel.close(promise: nil)
        }
    }

    /// Sets up a new connection; yields `nil` if it is refused.
    ///
    /// Never fails, since an error would end the server.
    private func setUp(
        _ channel: any Channel,
        limiter: ConnectionLimiter
    ) -> EventLoopFuture<(HTTP1Channel, HTTP1Channel.Value)?> {
        refuseFiles(sentTo: channel)
            .flatMap { PeerCredentials.read(of: channel) }
            .flatMap { peer -> EventLoopFuture<(HTTP1Channel, HTTP1Channel.Value)?> in
                guard let connection = limiter.admit(channel, peer: peer) else {
                    return channel.pipeline.addHandler(RefusalHandler()).map { nil }
                }
                let child = child(of: connection)
                return child.setup(channel: channel, logger: logger).map { (child, $0) }
            }
            .flatMapErrorThrowing { _ in
                channel.close(promise: nil)
                return nil
            }
    }

    /// Has the kernel refuse open files from a client that connected before the daemon began to listen; the others
    /// inherit that from the listener.
    ///
    /// The kernel releases files that are not received in the thread that reads, an event loop, which waits for a TCP
    /// socket with `SO_LINGER`.
    private func refuseFiles(sentTo channel: any Channel) -> EventLoopFuture<Void> {
        guard let provider = channel as? any SocketOptionProvider else {
            return channel.eventLoop.makeSucceededVoidFuture()
        }
        return provider.unsafeSetSocketOption(
            level: .socket,
            name: .init(rawValue: UnixSocket.passesFiles),
            value: CInt(0)
        )
        // Kernels before Linux 6.16 do not know the option.
        .recover { _ in }
    }

    private func child(of connection: ClientConnection) -> HTTP1Channel {
        HTTP1Channel(
            responder: { [responder] request, writer, _ in
                try await responder.respond(to: request, with: writer, over: connection)
            },
            configuration: HTTP1Channel.Configuration(
                additionalChannelHandlers: [ClientDeadlineHandler()],
                httpDecoderConfiguration: .init(
                    maxHeaderFieldSize: 16 << 10,
                    maxHeaderListSize: 32 << 10,
                    maxHeaderFieldCount: 100
                )
            )
        )
    }

    /// Size of the kernel's send buffer for a client that does not read.
    private static let bufferSize: ChannelOptions.Types.SocketOption.Value = 64 << 10
    /// Size of the daemon's send buffer for a client that does not read.
    private static let waterMark = ChannelOptions.Types.WriteBufferWaterMark(
        low: 16 << 10,
        high: 64 << 10
    )
    /// Size of a read from a connection; up to ten times as much may be buffered.
    private static let pieceSize = 16 << 10
}
