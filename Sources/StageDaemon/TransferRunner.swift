import FoundationEssentials
import Logging
import StageControl
import StageDigest
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Runs the attempts of downloads and uploads.
struct TransferRunner: Sendable {
    /// Result of an attempt.
    enum Result: Sendable {
        /// The download is complete and verified, in the part file.
        case received(PartialFile, TransferMetrics, ResponseSummary?)
        /// The upload is complete.
        case sent(TransferMetrics, ResponseSummary?, body: [UInt8])
        /// The attempt of a staging has ended.
        case staged(StagingEnd)
        /// The attempt did not complete; the verdict says whether to retry.
        case verdict(TransferVerdict)
    }

    let engine: TransferEngine
    let files: TransferFiles
    let storage: UserStorage
    let journal: Journal
    let logger: Logger

    /// Runs an attempt until it ends or `live` is stopped.
    func run(
        _ task: FullTask,
        owner: SessionRecord,
        transfer live: LiveTransfer,
        history: AttemptHistory
    ) async -> Result {
        let session = owner.configuration
        live.begin(task)
        let result = await live.stopSwitch.run { () -> Swift.Result<Result, TransferError> in
            do throws(TransferError) {
                switch task.request.kind {
                case .download:
                    return .success(
                        try await download(task, owner: owner, transfer: live, history: history)
                    )
                case .upload:
                    return .success(
                        try await upload(task, session: session, transfer: live, history: history)
                    )
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
            var verdict = TransferVerdict(
                error,
                wait: error == .cancelled ? state.wait : nil,
                answersChallenges: session.answersChallenges(of: task.request)
                    && task.request.isOfOrigin(state.response),
                clockIsWrong: Self.clockIsWrong,
                failures: history.failures,
                at: .now
            )
            if case .disk(problem: nil) = verdict { verdict = .disk(problem: state.journalProblem) }
            if live.hasProvisionalEnd { verdict = await settleProvisionalEnd(verdict, of: live) }
            logger.debug(
                "An attempt ended",
                metadata: ["task.id": "\(task.record.id)", "task.verdict": "\(verdict)"]
            )
            return .verdict(verdict)
        }
    }

    /// Records a provisional end before the last bytes of a request are sent that must not be repeated.
    private func recordProvisionalEnd(
        of live: LiveTransfer,
        bodySize: ByteCount
    ) async throws(TransferError) {
        do throws(DaemonError) {
            var event = SessionEvent(.failed, time: .now)
            event.failure = .lostResponse
            try await journal.setProvisionalEnd(event, of: live.id)
        } catch {
            logger.error("A provisional end was not recorded", metadata: ["error": "\(error)"])
            live.noteJournalProblem(error.diskProblem)
            throw .outOfSpace(files.root.path)
        }
        live.noteProvisionalEnd(bodySize)
    }

    /// Records the resource at which an upload resumes.
    private func recordResource(
        _ resource: UploadResource?,
        for live: LiveTransfer
    ) async throws(TransferError) {
        do throws(DaemonError) {
            try await journal.setUpload(resource, of: live.id)
        } catch {
            logger.error("An upload resource was not recorded", metadata: ["error": "\(error)"])
            live.noteJournalProblem(error.diskProblem)
            throw .outOfSpace(files.root.path)
        }
        live.noteResource(resource)
    }

    /// Adjusts the verdict on a request that must not be repeated: it fails if all of it may have been sent.
    ///
    /// Otherwise removes the provisional end.
    private func settleProvisionalEnd(
        _ verdict: TransferVerdict,
        of live: LiveTransfer
    ) async -> TransferVerdict {
        switch verdict {
        case .fail: return verdict
        // The engine starts a wait only for requests that it may repeat, and a challenge is a response.
        case .retry where live.current.wait != nil, .challenge: break
        case .retry, .stopped, .disk:
            if live.isAwaitingAnswer { return .fail(.lostResponse) }
        }
        do throws(DaemonError) {
            try await journal.setProvisionalEnd(nil, of: live.id)
        } catch {
            // The provisional end then fails the task at its next attempt.
            logger.warning("A provisional end was not removed", metadata: ["error": "\(error)"])
        }
        return verdict
    }

    private func download(
        _ task: FullTask,
        owner: SessionRecord,
        transfer live: LiveTransfer,
        history: AttemptHistory
    ) async throws(TransferError) -> Result {
        let (request, session, user) = (task.request, owner.configuration, owner.user)
        let file = DiskQuota.Item.part(task.record.part)
        guard let name = FilePath.Component(task.record.part) else { throw .cancelled }
        let parts = files.parts
        let part = try await withBlockingThread { () throws(TransferError) in
            try PartialFile.open(name, in: parts)
        }
        // Without a validator or a digest, the download begins again at its first byte.
        let isContinued = part.isContinuable || request.sha256 != nil
        live.noteReceived(isContinued ? part.length : .zero)
        var download = DownloadRequest(
            mirrors: [request.url] + (request.mirrors ?? []),
            size: request.size
        ) { path throws(TransferError) in
            try await Self.compare(path, with: request.sha256)
        } report: { event in
            live.take(event)
        }
        download.expectedKind = .anything
        download.allowedDomains = request.allowedDomains.map(AllowedDomains.init)
        download.method = request.method ?? "GET"
        download.isIdempotent = request.isIdempotent
        download.isContentAddressed = request.sha256 != nil
        download.acceptsErrorResponses = request.acceptsErrorResponses ?? false
        download.acceptsTransientResponses = live.acceptsAnyStatus
        download.requiresNewestTLS = session.minimumTLSVersion == "1.3"
        for field in request.fields(in: session) {
            if Self.isConfidential(field) {
                download.confidentialFields.append(field)
            } else {
                download.fields.append(field)
            }
        }
        download.challengeStatuses = session.answersChallenges(of: request) ? [401, 407] : []
        download.requestTimeout = .seconds(min(session.requestTimeout, 86_400))
        download.failuresBefore = history.failures
        download.receivedBefore = history.highestReceived
        download.priority = task.record.priority
        download.user = user
        download.permitSize = { [storage] size throws(TransferError) in
            try storage.permit(
                file,
                size: size,
                of: user,
                url: URLReference(request.url).withoutUser.text
            )
        }
        // A download has no body, so this is recorded before the request.
        if !download.isRepeatedSafely { try await recordProvisionalEnd(of: live, bodySize: .zero) }
        _ = try await engine.download(download, to: part)
        storage.set(file, to: part.length.rawValue, of: user)
        return .received(part, live.metrics(ended: .now), live.current.response)
    }

    /// Returns whether a header field must be sent to the request's origin only, not to mirrors or redirects.
    private static func isConfidential(_ field: String) -> Bool {
        let name = Substring(field.utf8.prefix { $0 != UInt8(ascii: ":") }).lowercased()
        return ["authorization", "proxy-authorization", "cookie"].contains(name)
    }

    /// Compares a file with the digest of its request, in hexadecimal; returns `nil` if it has this digest, or needs none.
    private static func compare(
        _ path: FilePath,
        with digest: String?
    ) async throws(TransferError) -> DigestMismatch? {
        guard let digest else { return nil }
        let expected: Digest
        do throws(ValueError) {
            expected = try Digest(hexadecimal: digest)
        } catch {
            // Checked when the task was created, so the journal is damaged.
            throw .wrongDigest(url: "")
        }
        do throws(FileError) {
            return try await withBlockingThread { () throws(FileError) in
                let found = try Digest(of: try File.open(reading: path))
                return DigestMismatch(expected: expected, found: found)
            }
        } catch {
            throw .storage(error)
        }
    }

    private func upload(
        _ task: FullTask,
        session: SessionConfiguration,
        transfer live: LiveTransfer,
        history: AttemptHistory
    ) async throws(TransferError) -> Result {
        let request = task.request
        var upload = UploadRequest(request, in: session)
        upload.acceptsTransientResponses = live.acceptsAnyStatus
        upload.willComplete = { () async throws(TransferError) in
            try await recordProvisionalEnd(of: live, bodySize: request.size ?? .zero)
        }
        upload.uploadProtocol = session.uploadProtocol.flatMap(UploadProtocol.init) ?? .plain
        upload.resource = task.upload
        upload.keepResource = { resource async throws(TransferError) in
            try await recordResource(resource, for: live)
        }
        upload.requestTimeout = .seconds(min(session.requestTimeout, 86_400))
        upload.failuresBefore = history.failures
        upload.priority = task.record.priority
        upload.user = live.user
        upload.report = { live.take($0) }
        let path = files.snapshots.path.appending(task.record.part)
        let file: File
        do throws(FileError) {
            file = try File.open(readingRegular: path)
        } catch {
            throw .storage(error)
        }
        let receipt = try await engine.upload(upload, from: file)
        let status = receipt.response.status
        let isChallenge = status == 401 || status == 407
        if isChallenge, session.answersChallenges(of: request),
            request.isOfOrigin(receipt.response)
        {
            live.keepChallengeBody(receipt.body)
            throw .refused(url: URLReference(request.url).withoutUser.text, status: status)
        }
        return .sent(live.metrics(ended: .now), live.current.response, body: receipt.body)
    }

    /// Asks the server to delete the resource of a cancelled upload, unless the time limit is over.
    func delete(_ deletion: ResourceDeletion) async {
        let rest = deletion.deadline - SuspendingClock.now
        guard rest > .zero else { return }
        var request = UploadRequest(deletion.task.request, in: deletion.owner.configuration)
        request.user = deletion.owner.user
        let status: Int?
        if request.parts != nil {
            status = await engine.abortParts(of: request, timeout: rest)
        } else if let resource = deletion.task.upload {
            status = await engine.delete(resource, of: request, timeout: rest)
        } else {
            return
        }
        logger.debug(
            "A server was asked to delete an upload resource",
            metadata: [
                "task.id": "\(deletion.task.record.id)",
                "http.status": "\(status.map(String.init) ?? "none")",
            ]
        )
    }

    /// Set if the clock is before the modification time of this program, and therefore wrong.
    private static var clockIsWrong: Bool {
        guard let status = try? File.open(reading: "/proc/self/exe").status() else { return false }
        return Date.now.timeIntervalSince1970 < Double(status.modified)
    }
}

extension UploadRequest {
    /// Creates the request of an upload task, without the settings of an attempt.
    fileprivate init(_ request: TransferRequest, in session: SessionConfiguration) {
        self.init(url: request.url)
        method = Method(rawValue: request.method ?? "POST") ?? .post
        fields = request.fields(in: session)
        allowedDomains = request.allowedDomains.map(AllowedDomains.init)
        isIdempotent = request.isIdempotent
        parts = request.parts
        requiresNewestTLS = session.minimumTLSVersion == "1.3"
    }
}

extension SessionConfiguration {
    /// Returns whether the client answers challenges to the request.
    fileprivate func answersChallenges(of request: TransferRequest) -> Bool {
        answersChallenges && request.ignoresChallenges != true
    }
}

extension TransferRequest {
    /// Returns whether a response came from the request's origin.
    ///
    /// Challenges of other servers are not passed to the client, since its credentials would be sent to the origin.
    fileprivate func isOfOrigin(_ answer: ResponseSummary?) -> Bool {
        guard let answer else { return true }
        guard let origin = URLReference(url).origin else { return false }
        return URLReference(answer.url).origin == origin
    }

    /// Returns the header fields as lines: those of the request, and those of the session that it does not override.
    func fields(in session: SessionConfiguration) -> [String] {
        let own = headers ?? [:]
        let names = Set(own.keys.map { $0.lowercased() })
        let more = session.headers.filter { !names.contains($0.key.lowercased()) }
        return own.merging(more) { one, _ in one }
            .sorted { $0.key < $1.key }
            .map { $0.value.isEmpty ? "\($0.key);" : "\($0.key): \($0.value)" }
    }
}
