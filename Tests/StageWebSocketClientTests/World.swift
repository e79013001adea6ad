import Glibc
import Logging
import StageModel
import StageOrigin
import StageSystem
import StageTesting
import StageTransfer
import StageWebSocketClient
import Synchronization
import SystemPackage
import Testing

/// Runs `body` with an engine and the URL of an echo; the test needs the trait `.directory`.
func withEcho<Result>(
    idleLimit: Duration = .seconds(60),
    connections: Int? = nil,
    onAccess: (@Sendable (AccessRecord) -> Void)? = nil,
    _ body: (TransferEngine, String) async throws -> Result
) async throws -> Result {
    var configuration = OriginConfiguration()
    configuration.echoIdleLimit = idleLimit
    if let connections { configuration.echoConnections = connections }
    configuration.onAccess = onAccess
    return try await withOrigin(
        try TemporaryDirectory.required().path,
        configuration: configuration,
        logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    ) { address in
        try await withEngine { engine in
            try await body(engine, "ws://127.0.0.1:\(address.port)/.stagepack/echo")
        }
    }
}

/// Runs `body` with an engine.
func withEngine<Result>(
    _ configuration: TransferConfiguration = TransferConfiguration(),
    _ body: (TransferEngine) async throws -> Result
) async throws -> Result {
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    return try await withTransferEngine(configuration, logger: logger, body)
}
