import StageModel

/// A connection to a server over which the caller speaks its own protocol.
///
/// The engine opens it as it does for a request over HTTP/1.1: through its proxies, with TLS verified against its
/// authorities. The engine reads nothing ahead, so a caller that does not read stops the server. The connection does
/// not count against the connection limits, and closes with the engine's scope at the latest.
public final class ByteConnection: Sendable {
    /// Value of a `Host` field for the URL.
    public let host: String
    /// Path and query of the URL, as a request line has them.
    public let target: String
    /// Value of an `Authorization` field for the URL, if the engine's configuration has credentials that may be sent
    /// there.
    public let authorization: String?

    private let engine: TransferEngine
    private let tag: Int

    init(_ engine: TransferEngine, tag: Int, url: TransferURL) {
        self.engine = engine
        self.tag = tag
        let rest = url.display.dropFirst(url.scheme.count + 3)
        let slash = rest.utf8.firstIndex(of: UInt8(ascii: "/")) ?? rest.endIndex
        host = String(rest[..<slash])
        target = slash == rest.endIndex ? "/" : String(rest[slash...])
        authorization = engine.configuration.authorization(for: url)
    }

    deinit { close() }

    /// Returns the next bytes, at most 64 KiB, or an empty array once the server has closed its side.
    ///
    /// Only one task may call it at a time.
    ///
    /// - Throws: ``TransferError``; ``TransferError/cancelled`` after ``close()``, and if the task is cancelled,
    ///   which closes the connection.
    public func receive() async throws(TransferError) -> [UInt8] {
        try await engine.receive(tag)
    }

    /// Sends bytes, and returns once the kernel has accepted them.
    ///
    /// Only one task may call it at a time.
    ///
    /// - Throws: ``TransferError`` as ``receive()`` does.
    public func send(_ bytes: [UInt8]) async throws(TransferError) {
        try await engine.send(bytes, over: tag)
    }

    /// Closes the connection, without waiting for the server.
    public func close() { engine.closeSoon(tag) }
}

extension TransferEngine {
    /// Connects to the server of an http or https URL.
    ///
    /// - Parameters:
    ///   - url: The URL.
    ///   - requiresNewestTLS: `true` to require TLS 1.3 instead of 1.2 or later.
    /// - Returns: The open connection.
    /// - Throws: ``TransferError``, with ``TransferError/cancelled`` if the task is cancelled.
    public func connect(
        to url: String,
        requiresNewestTLS: Bool = false
    ) async throws(TransferError) -> ByteConnection {
        let url = try TransferURL(url)
        guard !url.isFile else { throw .unacceptable(url: url.display, .url) }
        let tag = takeTag()
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let connection = RawConnection(
                    url,
                    requiresNewestTLS: requiresNewestTLS,
                    opening: continuation
                )
                add(connection, tag: tag)
                if Task.isCancelled { close(tag) }
            }
        } onCancel: {
            closeSoon(tag)
        }
        if case .failure = result { close(tag) }
        try result.get()
        return ByteConnection(self, tag: tag, url: url)
    }

    fileprivate func receive(_ tag: Int) async throws(TransferError) -> [UInt8] {
        guard let connection = connection(tag) else { throw .cancelled }
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                connection.read(continuation)
                if Task.isCancelled { close(tag) }
            }
        } onCancel: {
            closeSoon(tag)
        }
        return try result.get()
    }

    fileprivate func send(_ bytes: [UInt8], over tag: Int) async throws(TransferError) {
        guard let connection = connection(tag) else { throw .cancelled }
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                connection.write(bytes, resuming: continuation)
                if Task.isCancelled { close(tag) }
            }
        } onCancel: {
            closeSoon(tag)
        }
        try result.get()
    }
}
