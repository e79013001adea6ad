import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Receives the response to a data or upload task, and delivers it to the task's receiver.
struct ResponseSink {
    private enum Target {
        case delegate
        case memory
        case bytes(ResponseBytes)
        case file(ResponseFile)
    }

    /// Limit on the bytes that were received and not yet delivered.
    let receiveWindow: ReceiveWindow
    private let session: URLSession
    private var task: URLSessionTask
    private let transfer: ForegroundTransfer
    private var target: Target
    private var data = Data()
    /// A copy for the cache, with its request.
    private var copy: (request: URLRequest, response: URLResponse, data: Data)?
    private var received: Int64 = 0

    init(for task: URLSessionTask, in session: URLSession, transfer: ForegroundTransfer) {
        self.session = session
        self.task = task
        self.transfer = transfer
        switch transfer.receiver {
        case .delegate: target = .delegate
        case .data, .file: target = .memory
        case .bytes(let bytes): target = .bytes(bytes)
        }
        receiveWindow = transfer.receiveWindow
    }

    /// Handles the head of a response; returns whether its body should be read.
    mutating func begin(
        _ response: URLResponse,
        decodes: Bool,
        cachesAs request: URLRequest?
    ) async throws(URLError) -> Bool {
        let expected = decodes ? NSURLSessionTransferSizeUnknown : response.expectedContentLength
        task.record.withLock { record in
            record.response = response
            record.beginContent()
            if record.request.kind == .download { record.bytesExpected = expected }
        }
        if let request { copy = (request, response, Data()) }
        if task is URLSessionDownloadTask {
            try beginFile()
            return true
        }
        switch target {
        case .bytes(let bytes): bytes.begin(response)
        case .delegate:
            guard let data = task as? URLSessionDataTask,
                let delegate = task.listener as? any URLSessionDataDelegate
            else { return true }
            let head = UnchangingResponse(value: response)
            let disposition = await session.ask(orElse: URLSession.ResponseDisposition.cancel) {
                [session] reply in
                delegate.urlSession(
                    session,
                    dataTask: data,
                    didReceive: head.value,
                    completionHandler: reply
                )
            }
            switch disposition {
            case .cancel: return false
            case .becomeDownload:
                let download = session.makeSuccessor(of: data, transfer: transfer)
                task = download
                session.delegateCalls.add { [session] in
                    delegate.urlSession(session, dataTask: data, didBecome: download)
                }
                try beginFile()
            default: break
            }
        default: break
        }
        return true
    }

    /// Begins to write the response to a file.
    private mutating func beginFile() throws(URLError) {
        guard let request = task.originalRequest else { throw URLError(.badURL) }
        do throws(FileError) {
            target = .file(try ResponseFile(PartialDownload(request)))
        } catch {
            throw URLError(
                .cannotCreateFile,
                reason: "\(error)",
                failing: task.originalRequest?.url
            )
        }
    }

    /// Handles the next bytes of the body.
    mutating func take(_ bytes: [UInt8]) async throws(URLError) {
        received += Int64(bytes.count)
        let count = bytes.count
        if copy != nil { keepCopy(of: bytes) }
        task.record.withLock { [received] in $0.bytesReceived = received }
        task.showProgress()
        switch target {
        case .memory:
            data.append(contentsOf: bytes)
            receiveWindow.remove(count)
        case .bytes(let answer): answer.add(bytes)
        case .delegate:
            guard let dataTask = task as? URLSessionDataTask else {
                return receiveWindow.remove(count)
            }
            session.delegateCalls.add { [session, receiveWindow] in
                (dataTask.listener as? any URLSessionDataDelegate)?
                    .urlSession(session, dataTask: dataTask, didReceive: Data(bytes))
                receiveWindow.remove(count)
            }
        case .file(let file):
            do throws(FileError) {
                try await withBlockingThread { () throws(FileError) in try file.write(bytes) }
            } catch {
                let code: URLError.Code = .cannotWriteToFile
                throw URLError(code, reason: "\(error)", failing: task.originalRequest?.url)
            }
            receiveWindow.remove(count)
            var event = SessionEvent(.progress, time: .now)
            event.bytesReceived = ByteCount(received)
            session.take(event, of: task)
        }
    }

    /// Finishes a complete response.
    mutating func finish() async throws(URLError) -> ForegroundEnd {
        if let copy, let cache = session.rules.urlCache {
            let proposed = CachedURLResponse(response: copy.response, data: copy.data)
            if let kept = await acceptedCopy(proposed) {
                let sent = task.record.withLock { $0.process?.asked } ?? .now
                ResponseCache.keep(kept, to: copy.request, sent: sent, in: cache)
            }
        }
        switch target {
        case .memory, .delegate, .bytes: return .answer(data)
        case .file(let file): return .file(file.handOver())
        }
    }

    /// Returns the response that the delegate wants to cache; `nil` for none.
    private func acceptedCopy(_ proposed: CachedURLResponse) async -> CachedURLResponse? {
        guard transfer.notifiesDelegate, let data = task as? URLSessionDataTask,
            let delegate = task.listener as? any URLSessionDataDelegate
        else { return proposed }
        let response = UnchangingCachedResponse(value: proposed)
        let kept: UnchangingCachedResponse? = await session.ask(orElse: nil) { [session] reply in
            delegate.urlSession(
                session,
                dataTask: data,
                willCacheResponse: response.value,
                completionHandler: { reply($0.map { UnchangingCachedResponse(value: $0) }) }
            )
        }
        return kept?.value
    }

    /// Adds bytes to the copy for the cache, unless the response is too large for it.
    private mutating func keepCopy(of bytes: [UInt8]) {
        guard let cache = session.rules.urlCache else { return }
        copy?.data.append(contentsOf: bytes)
        // A twentieth, as Apple's cache does.
        let limit = max(cache.memoryCapacity, cache.diskCapacity) / 20
        if copy?.data.count ?? 0 > limit { copy = nil }
    }
}

/// A file that a response is written to; it is removed unless it was handed over.
private final class ResponseFile: Sendable {
    let partial: PartialDownload
    private let file: File
    private let offset = Atomic<Int64>(0)
    private let isHandedOver = Atomic(false)

    init(_ partial: PartialDownload) throws(FileError) {
        self.partial = partial
        file = try partial.makeFile()
    }

    deinit {
        if !isHandedOver.load(ordering: .relaxed) { partial.remove() }
    }

    /// Returns the complete file, which the caller must remove.
    func handOver() -> PartialDownload {
        isHandedOver.store(true, ordering: .relaxed)
        return partial
    }

    /// Writes the next bytes; only one thread at a time may call it.
    func write(_ bytes: [UInt8]) throws(FileError) {
        try file.write(bytes.span, at: offset.load(ordering: .relaxed))
        offset.add(Int64(bytes.count), ordering: .relaxed)
    }
}
