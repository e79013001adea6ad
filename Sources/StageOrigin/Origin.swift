import Hummingbird
import HummingbirdCore
package import Logging
import NIOCore
import StageSystem
package import SystemPackage

/// HTTP server for a directory, for development: with validators computed from content, ranges, and faults on
/// request.
///
/// Does not serve files and directories whose names begin with a dot, or symbolic links that lead out of the
/// directory. `/.stagepack/echo` is a WebSocket endpoint (RFC 6455) that sends each message back, with
/// permessage-deflate if the client offers it; pages of other origins may not use it.
package struct Origin: Sendable {
    private let responder: OriginResponder
    private let configuration: OriginConfiguration
    private let logger: Logger

    /// Opens the directory to serve.
    ///
    /// - Throws: ``OriginError/directory(_:)`` if it cannot be read.
    package init(
        _ directory: FilePath,
        configuration: OriginConfiguration = OriginConfiguration(),
        logger: Logger
    ) throws(OriginError) {
        do throws(FileError) {
            let tree = ServedTree(root: try Directory.open(directory))
            responder = OriginResponder(tree: tree, configuration: configuration, logger: logger)
        } catch {
            throw .directory(error)
        }
        self.configuration = configuration
        self.logger = logger
    }

    /// Serves requests until the task is cancelled, then closes all connections.
    ///
    /// Call it only once. Calls `onReady` once connections are accepted. Cancellation is not an error.
    ///
    /// - Throws: ``OriginError/address(host:port:reason:)`` if the origin cannot listen on the address, and
    ///   ``OriginError/host(_:reason:)`` if it cannot listen on any port of the host.
    package func run(
        onReady: @escaping @Sendable (OriginAddress) -> Void
    ) async throws(OriginError) {
        let (host, port) = (configuration.host, configuration.port)
        let application = Application(
            responder: CallbackResponder<BasicRequestContext> { [responder] request, _ in
                await responder.respond(to: request)
            },
            server: HTTPServerBuilder { [configuration] responder in
                EchoChannel(
                    http: HTTP1Channel(responder: responder),
                    idleLimit: configuration.echoIdleLimit,
                    admission: EchoAdmission(limit: configuration.echoConnections),
                    onAccess: configuration.onAccess
                )
            },
            configuration: ApplicationConfiguration(
                address: .hostname(host, port: port),
                serverName: "StagePack"
            ),
            onServerRunning: { channel in
                onReady(OriginAddress(host: host, port: channel.localAddress?.port ?? port))
            },
            logger: logger
        )
        do {
            try await application.run()
        } catch is CancellationError {
            return
        } catch is SocketAddressError.UnknownHost {
            throw .host(host, reason: "the name has no address")
        } catch let error as IOError {
            // The library's text names functions of its own beside the system's message.
            let reason = Errno(rawValue: error.errnoCode)
            guard reason != .addressNotAvailable else {
                throw .host(host, reason: "it is not an address of this machine")
            }
            throw .address(host: host, port: port, reason: "\(reason)")
        } catch {
            throw .address(host: host, port: port, reason: "\(error)")
        }
    }
}
