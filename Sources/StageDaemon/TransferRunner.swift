import FoundationEssentials
import Logging
import StageControl
import StageDigest
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Carries out one attempt of one task.
struct TransferRunner: Sendable {
    /// What an attempt came to.
    enum Result: Sendable {
        /// The content is here and is what was asked for: in the part file of this name.
        case received(FilePath.Component, TransferMetrics, ResponseSummary?)
        /// The file was sent.
        case sent(TransferMetrics, ResponseSummary?, body: [UInt8])
        /// An attempt at a staging has ended.
        case staged(StagingEnd)
        /// Something else.
        case verdict(TransferVerdict)
    }

    let engine: TransferEngine
    let store: TransferStore
    let storage: UserStorage
    let logger: Logger

    /// Carries out an attempt, until it ends or `live` is switched off.
    func run(
        _ task: FullTask,
        _ owner: SessionRecord,
        _ live: LiveTransfer,
        failures: Int
    ) async -> Result {
        let session = owner.configuration
        let result = await live.switchOff.run { () -> Swift.Result<Result, TransferError> in
            do throws(TransferError) {
                switch task.request.kind {
                case .download:
                    return .success(try await download(task, owner, live, failures))
                case .upload: return .success(try await upload(task, session, live, failures))
                case .staging: throw .cancelled
                }
            } catch {
                return .failure(error)
            }
        }
        switch result {
        case .success(let result): return result
        case .failure(let error):
            let state = live.current
            let verdict = TransferVerdict(
                error,
                wait: error == .cancelled ? state.wait : nil,
                answersChallenges: session.answersChallenges,
                clockIsWrong: Self.clockIsWrong,
                at: .now
            )
            logger.debug(
                "An attempt ended",
                metadata: ["task.id": "\(task.record.id)", "task.verdict": "\(verdict)"]
            )
            return .verdict(verdict)
        }
    }

    private func download(
        _ task: FullTask,
        _ owner: SessionRecord,
        _ live: LiveTransfer,
        _ failures: Int
    ) async throws(TransferError) -> Result {
        let (request, session, user) = (task.request, owner.configuration, owner.user)
        let file = HeldBytes.Item.part(task.record.part)
        guard let name = FilePath.Component(task.record.part) else { throw .cancelled }
        let part = try PartFile.open(name, in: store.parts)
        var download = DownloadRequest(
            mirrors: [request.url] + (request.mirrors ?? []),
            size: request.size
        ) { path throws(TransferError) in
            try await Self.matches(path, request.sha256)
        } report: { event in
            live.take(event)
        }
        download.promise = .anything
        download.allowedDomains = request.allowedDomains.map(AllowedDomains.init)
        download.method = request.method ?? "GET"
        download.isContentAddressed = request.sha256 != nil
        download.acceptsErrorResponses = request.acceptsErrorResponses ?? false
        download.fields = request.fields(session)
        download.requestTimeout = .seconds(min(session.requestTimeout, 86_400))
        download.failuresBefore = failures
        download.priority = task.record.priority
        download.permitSize = { [storage] size throws(TransferError) in
            try storage.permit(file, size, of: user, url: TransferAddress.withoutUser(request.url))
        }
        _ = try await engine.download(download, to: part)
        storage.set(file, to: part.length.rawValue, of: user)
        return .received(part.fileName, live.metrics(ended: .now), live.current.response)
    }

    private static func matches(
        _ path: FilePath,
        _ digest: String?
    ) async throws(TransferError) -> Bool {
        guard let digest else { return true }
        do throws(FileError) {
            return try await withBlockingThread { () throws(FileError) in
                "\(try Digest(of: try File.open(reading: path)))" == digest.lowercased()
            }
        } catch {
            throw .storage(error)
        }
    }

    private func upload(
        _ task: FullTask,
        _ session: SessionConfiguration,
        _ live: LiveTransfer,
        _ failures: Int
    ) async throws(TransferError) -> Result {
        let request = task.request
        var upload = UploadRequest(url: request.url)
        upload.method = UploadRequest.Method(rawValue: request.method ?? "POST") ?? .post
        upload.fields = request.fields(session)
        upload.allowedDomains = request.allowedDomains.map(AllowedDomains.init)
        upload.acceptsErrorResponses = request.acceptsErrorResponses ?? false
        upload.requestTimeout = .seconds(min(session.requestTimeout, 86_400))
        upload.failuresBefore = failures
        upload.priority = task.record.priority
        upload.report = { live.take($0) }
        let path = store.snapshots.path.appending(task.record.part)
        let file: File
        do throws(FileError) {
            file = try File.open(readingRegular: path)
        } catch {
            throw .storage(error)
        }
        let receipt = try await engine.upload(upload, from: file)
        return .sent(live.metrics(ended: .now), live.current.response, body: receipt.body)
    }

    /// Whether the clock is earlier than the program.
    private static var clockIsWrong: Bool {
        guard let status = try? File.open(reading: "/proc/self/exe").status() else { return false }
        return Date.now.timeIntervalSince1970 < Double(status.modified)
    }
}

extension TransferRequest {
    /// The header fields of the request, each as one line: its own, and those of the session that it
    /// does not have.
    func fields(_ session: SessionConfiguration) -> [String] {
        let own = headers ?? [:]
        let names = Set(own.keys.map { $0.lowercased() })
        let more = session.headers.filter { !names.contains($0.key.lowercased()) }
        return own.merging(more) { one, _ in one }
            .sorted { $0.key < $1.key }
            .map { $0.value.isEmpty ? "\($0.key);" : "\($0.key): \($0.value)" }
    }
}
