import FoundationEssentials
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOPosix
import StageControl
import StageSystem

/// Answers clients on a Unix socket.
struct ControlServer: Sendable {
    let responder: ControlResponder
    let logger: Logger

    /// Answers until the task is cancelled.
    ///
    /// The descriptor is a listening socket, and the server's from now on.
    func run(_ listener: CInt, onReady: @Sendable () -> Void) async throws {
        let gate = ClientGate(.current)
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AcceptBrake())
                }
            }
            .serverChannelOption(.maxMessagesPerRead, value: 64)
            .childChannelOption(.socketOption(.so_sndbuf), value: Self.bufferSize)
            .childChannelOption(.writeBufferWaterMark, value: Self.waterMark)
            .childChannelOption(
                .recvAllocator,
                value: FixedSizeRecvByteBufferAllocator(capacity: Self.pieceSize)
            )
            // What is accepted was let in by the gate already; a queue of connections keeps others waiting.
            .bind(
                listener,
                serverBackPressureStrategy: .init(lowWatermark: 512, highWatermark: 2048)
            ) { channel in
                setUp(channel, gate)
            }
        onReady()
        try await withTaskCancellationHandler {
            try await withThrowingDiscardingTaskGroup { group in
                try await server.executeThenClose { clients in
                    for try await client in clients {
                        guard let (child, value) = client else { continue }
                        group.addTask { await child.handle(value: value, logger: logger) }
                    }
                }
                group.cancelAll()
            }
        } onCancel: {
            server.channel.close(promise: nil)
        }
    }

    /// Takes a connection in, or yields `nil` for one that is refused.
    ///
    /// It never fails: that would end the server.
    private func setUp(
        _ channel: any Channel,
        _ gate: ClientGate
    ) -> EventLoopFuture<(HTTP1Channel, HTTP1Channel.Value)?> {
        PeerCredentials.read(of: channel)
            .flatMap { peer -> EventLoopFuture<(HTTP1Channel, HTTP1Channel.Value)?> in
                guard let client = gate.admit(channel, peer) else {
                    return channel.pipeline.addHandler(RefusalHandler()).map { nil }
                }
                let child = child(of: client)
                return child.setup(channel: channel, logger: logger).map { (child, $0) }
            }
            .flatMapErrorThrowing { _ in
                channel.close(promise: nil)
                return nil
            }
    }

    private func child(of client: Client) -> HTTP1Channel {
        HTTP1Channel(
            responder: { [responder] request, writer, _ in
                try await responder.respond(request, writer, client)
            },
            configuration: HTTP1Channel.Configuration(
                httpDecoderConfiguration: .init(
                    maxHeaderFieldSize: 16 << 10,
                    maxHeaderListSize: 32 << 10,
                    maxHeaderFieldCount: 100
                )
            )
        )
    }

    /// The bytes that the kernel keeps for a client that does not read.
    private static let bufferSize: ChannelOptions.Types.SocketOption.Value = 64 << 10
    /// The bytes that are kept here for a client that does not read.
    private static let waterMark = ChannelOptions.Types.WriteBufferWaterMark(
        low: 16 << 10,
        high: 64 << 10
    )
    /// The bytes that are read of a connection at once; up to ten times as many wait to be looked at.
    private static let pieceSize = 16 << 10
}
