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
        let child = HTTP1Channel(
            responder: { [responder] request, writer, channel in
                try await responder.respond(
                    request,
                    writer,
                    try await Self.caller(channel),
                    channel
                )
            },
            configuration: HTTP1Channel.Configuration(
                idleTimeout: .seconds(60),
                httpDecoderConfiguration: .init(
                    maxHeaderFieldSize: 16 << 10,
                    maxHeaderListSize: 32 << 10,
                    maxHeaderFieldCount: 100
                )
            )
        )
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .bind(listener, serverBackPressureStrategy: nil) { [logger] channel in
                child.setup(channel: channel, logger: logger)
            }
        onReady()
        try await withTaskCancellationHandler {
            try await withThrowingDiscardingTaskGroup { group in
                try await server.executeThenClose { clients in
                    for try await client in clients {
                        group.addTask { await child.handle(value: client, logger: logger) }
                    }
                }
                group.cancelAll()
            }
        } onCancel: {
            server.channel.close(promise: nil)
        }
    }

    /// The client at the other end of a connection.
    private static func caller(_ channel: any Channel) async throws -> Caller {
        let peer = try await PeerCredentials.of(channel)
        return Caller(
            identity: UserIdentity(user: peer.user, group: peer.group, groups: peer.groups),
            process: peer.process
        )
    }
}
