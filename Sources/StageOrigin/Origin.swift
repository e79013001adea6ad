import Hummingbird
import HummingbirdCore
public import Logging
import StageSystem
public import SystemPackage

/// Serves a directory over HTTP, for development: validators made from content, ranges, and faults
/// on request.
///
/// Files and directories whose names begin with a dot are not served, nor is anything that a
/// symbolic link outside the directory would have to be followed for. At `/.stagepack/echo` is a WebSocket (RFC 6455)
/// that sends each message back, with permessage-deflate where a client offers it. Pages of other origins may not use it.
public struct Origin: Sendable {
    private let responder: OriginResponder
    private let configuration: OriginConfiguration
    private let logger: Logger

    /// Opens the directory to be served.
    ///
    /// - Throws: ``OriginError/directory(_:)`` if there is none that can be read.
    public init(
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

    /// Listens and answers until the task is cancelled, and then closes every connection.
    ///
    /// To be called once. `onReady` is called when connections are accepted. Cancellation ends the
    /// origin and is not an error.
    ///
    /// - Throws: ``OriginError/address(host:port:reason:)`` if the address cannot be listened on.
    public func run(
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
        } catch {
            throw .address(host: host, port: port, reason: "\(error)")
        }
    }
}

/// Serves `directory` while `body` runs, and returns what `body` returns.
///
/// When this returns, nothing listens any more and every connection is closed.
///
/// - Throws: ``OriginError`` if the directory or the address cannot be used, and what `body` throws.
public func withOrigin<Result>(
    _ directory: FilePath,
    configuration: OriginConfiguration = OriginConfiguration(),
    logger: Logger,
    _ body: (OriginAddress) async throws -> Result
) async throws -> Result {
    let origin = try Origin(directory, configuration: configuration, logger: logger)
    let (addresses, ready) = AsyncStream.makeStream(of: OriginAddress.self)
    return try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask {
            // Whoever waits for the address must learn that there will be none.
            defer { ready.finish() }
            try await origin.run { ready.yield($0) }
        }
        defer { group.cancelAll() }
        for await address in addresses {
            return try await body(address)
        }
        try await group.waitForAll()
        throw CancellationError()
    }
}
