import CCurl
import Glibc

/// A connection that libcurl opens and the caller uses (`CURLOPT_CONNECT_ONLY`).
///
/// Used on the engine's thread only. At most one read and one write may be pending.
@safe final class RawConnection {
    typealias Reading = CheckedContinuation<Result<[UInt8], TransferError>, Never>
    typealias Writing = CheckedContinuation<Result<Void, TransferError>, Never>

    private let url: TransferURL
    private let requiresNewestTLS: Bool
    private var easy: EasyHandle?
    private var configuration = TransferConfiguration()
    private var opening: Writing?
    private var reading: Reading?
    private var writing: (bytes: [UInt8], start: Int, continuation: Writing)?
    private var socket: curl_socket_t?
    private var scratch = [UInt8](repeating: 0, count: 1 << 16)
    private var isClosed = false

    init(_ url: TransferURL, requiresNewestTLS: Bool, opening: Writing) {
        self.url = url
        self.requiresNewestTLS = requiresNewestTLS
        self.opening = opening
    }

    /// Lets libcurl open the connection; a failure resumes ``opening``.
    ///
    /// Without `mayAbandonLookup`, ``close(on:)`` waits for the lookup of a name.
    func start(
        on multi: UnsafeMutableRawPointer,
        configuration: TransferConfiguration,
        tag: Int,
        mayAbandonLookup: Bool
    ) {
        self.configuration = configuration
        var easy = EasyHandle()
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        var code = unsafe easy.prepare(for: tag, header: pass, body: pass, context: context)
        if code == CURLE_OK {
            code = easy.setConnectOnly(
                to: url,
                configuration: configuration,
                requiresNewestTLS: requiresNewestTLS
            )
        }
        if code == CURLE_OK, !mayAbandonLookup { code = easy.waitForLookup() }
        if code == CURLE_OK, unsafe curl_multi_add_handle(multi, easy.pointer) != CURLM_OK {
            code = CURLE_FAILED_INIT
        }
        self.easy = consume easy
        if code != CURLE_OK { didConnect(code) }
    }

    /// `true` while the name of the server, or of the proxy, is looked up.
    var isLookingUp: Bool {
        opening != nil && easy?.wasNameResolved == false && configuration.mayLookUpName(for: url)
    }

    /// Handles libcurl's result of opening the connection.
    func didConnect(_ code: CURLcode) {
        guard let opening else { return }
        self.opening = nil
        var socket: curl_socket_t = CURL_SOCKET_BAD
        if code == CURLE_OK, let pointer = unsafe easy?.pointer,
            unsafe stage_easy_socket(pointer, &socket) == CURLE_OK, socket != CURL_SOCKET_BAD
        {
            self.socket = socket
            opening.resume(returning: .success(()))
        } else {
            opening.resume(returning: .failure(error(code)))
        }
    }

    /// Reads the next bytes; an empty array at the end of the stream.
    func read(_ continuation: Reading) {
        precondition(reading == nil, "a connection is read by one task at a time")
        guard !isClosed else { return continuation.resume(returning: .failure(.cancelled)) }
        reading = continuation
    }

    /// Writes all bytes.
    func write(_ bytes: [UInt8], resuming continuation: Writing) {
        precondition(writing == nil, "a connection is written by one task at a time")
        guard !isClosed else { return continuation.resume(returning: .failure(.cancelled)) }
        writing = (bytes, 0, continuation)
    }

    /// Reads and writes as far as possible, and returns the socket with the events to poll for, if any.
    func advance() -> curl_waitfd? {
        guard let socket else { return nil }
        advanceReading()
        advanceWriting()
        let events =
            (reading == nil ? 0 : CURL_WAIT_POLLIN) | (writing == nil ? 0 : CURL_WAIT_POLLOUT)
        guard events != 0 else { return nil }
        return curl_waitfd(fd: socket, events: Int16(events), revents: 0)
    }

    /// Removes the connection from libcurl, which closes it, and cancels pending calls.
    func close(on multi: UnsafeMutableRawPointer) {
        isClosed = true
        socket = nil
        opening.take()?.resume(returning: .failure(.cancelled))
        reading.take()?.resume(returning: .failure(.cancelled))
        writing.take()?.continuation.resume(returning: .failure(.cancelled))
        guard let pointer = unsafe easy?.pointer else { return }
        // The call fails for a handle that was never added, which is harmless.
        unsafe _ = curl_multi_remove_handle(multi, pointer)
        easy = nil
    }

    private func advanceReading() {
        guard let reading, let pointer = unsafe easy?.pointer else { return }
        var count = 0
        let code = unsafe scratch.withUnsafeMutableBytes { buffer in
            unsafe curl_easy_recv(pointer, buffer.baseAddress, buffer.count, &count)
        }
        guard code != CURLE_AGAIN else { return }
        self.reading = nil
        reading.resume(
            returning: code == CURLE_OK ? .success(Array(scratch[..<count])) : .failure(error(code))
        )
    }

    private func advanceWriting() {
        guard let (bytes, start, continuation) = writing, let pointer = unsafe easy?.pointer else {
            return
        }
        var position = start
        var code = CURLE_OK
        while position < bytes.count, code == CURLE_OK {
            var count = 0
            unsafe code = bytes.withUnsafeBytes { buffer in
                let rest = unsafe UnsafeRawBufferPointer(rebasing: buffer[position...])
                return unsafe curl_easy_send(pointer, rest.baseAddress, rest.count, &count)
            }
            if code == CURLE_OK { position += count }
        }
        if code == CURLE_AGAIN {
            writing = (bytes, position, continuation)
            return
        }
        writing = nil
        continuation.resume(returning: code == CURLE_OK ? .success(()) : .failure(error(code)))
    }

    private func error(_ code: CURLcode) -> TransferError {
        var end =
            easy?.end(code, of: url, configuration: configuration) ?? ExchangeEnd(code: code)
        end.wasRequestSent = socket != nil
        return TransferStateMachine.Outcome.failed(end, url: url.display).error
            ?? .unreachable(url: url.display, detail: end.explanation)
    }
}

/// Discards a proxy's response.
private func pass(
    bytes: UnsafeMutablePointer<CChar>?,
    size: Int,
    count: Int,
    context: UnsafeMutableRawPointer?
) -> Int { size * count }
