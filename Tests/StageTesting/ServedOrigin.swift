package import Logging
package import StageOrigin
package import SystemPackage

/// Serves `directory` while `body` runs, and returns the result of `body`.
///
/// On return, the origin no longer listens, and all connections are closed.
///
/// - Throws: ``OriginError`` if the directory or the address is unusable, and errors of `body`.
package func withOrigin<Result>(
    _ directory: FilePath,
    configuration: OriginConfiguration = OriginConfiguration(),
    logger: Logger,
    body: (OriginAddress) async throws -> Result
) async throws -> Result {
    let origin = try Origin(directory, configuration: configuration, logger: logger)
    let (addresses, ready) = AsyncStream.makeStream(of: OriginAddress.self)
    return try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask {
            // If the origin fails, this ends the wait for its address.
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
