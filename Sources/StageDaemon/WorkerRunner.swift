import FoundationEssentials
import Glibc
import Logging
import StageControl
import StageModel
import StageSystem
import SystemPackage

/// Runs workers: processes that stage packs as the user who owns the container.
///
/// The user can replace a worker's program at any time (ptrace(2)), so its messages are trusted only as far as the
/// user's own statements.
struct WorkerRunner: Sendable {
    /// The worker's program; `nil` if it is not installed.
    let program: FilePath?
    let launcher: HandlerLauncher
    let configuration: DaemonConfiguration
    let logger: Logger

    /// Maximum run time of a worker.
    ///
    /// The scheduler then starts others, and the staging resumes later.
    private static let slice = Duration.seconds(3600)
    /// Time between SIGTERM and SIGKILL, in which a worker makes its partial files durable.
    private static let grace = Duration.seconds(10)

    /// Waits while the client carries out its staging, until `live` is stopped.
    static func awaitClient(_ live: LiveTransfer) async -> TransferRunner.Result {
        await live.stopSwitch.run { await waitForCancellation() }
        return .verdict(.stopped)
    }

    /// Carries out a staging with a worker, until the worker ends or `live` is stopped.
    func run(
        _ job: WorkerJob,
        of task: Int64,
        owner: SessionRecord,
        transfer live: LiveTransfer
    ) async -> TransferRunner.Result {
        let clock = Task {
            // Cancelled: the worker has ended.
            guard (try? await Task.sleep(for: Self.slice, clock: .suspending)) != nil else {
                return
            }
            live.stopSwitch.stop()
        }
        defer { clock.cancel() }
        let name = "staging-\(task)"
        let end = await live.stopSwitch.run {
            await runWorker(job, name: name, owner: owner, transfer: live)
        }
        // A process that cannot be killed counts as a running worker until it has ended.
        if case .stopped(let remaining?) = end { await remaining.waitForEnd() }
        await withBlockingThread { launcher.groups?.end(name, of: owner.user) }
        switch end {
        case .reported(let end): return .staged(explain(end, of: owner.user))
        case .stopped: return .verdict(.stopped)
        }
    }

    /// The end of a worker's process.
    private enum WorkerEnd: Sendable {
        case reported(StagingEnd)
        /// The worker was stopped; `remaining` is its process if that cannot be killed.
        case stopped(remaining: UnkillableProcess?)
    }

    /// Starts the worker, sends it the job, and returns its end.
    private func runWorker(
        _ job: WorkerJob,
        name: String,
        owner: SessionRecord,
        transfer live: LiveTransfer
    ) async -> WorkerEnd {
        do throws(FileError) {
            let (own, others) = try MessageSocket.pair()
            own.refuseFiles()
            let worker = try await worker(
                for: job.job,
                owner: owner,
                name: name,
                channel: others
            )
            // Stopped before it began.
            if Task.isCancelled { return .stopped(remaining: nil) }
            // A job that cannot be encoded, from a damaged journal, is sent empty, and the worker refuses it.
            let text = (try? ControlFormat.encode(job)).map(Array.init) ?? []
            try own.send(Array(text.prefix(MessageSocket.maximumLength)))
            own.finish()
            async let reportedEnd = withBlockingThread { Self.listen(to: own, transfer: live) }
            let result = await Self.result { () async throws(FileError) in
                try await worker.run(grace: Self.grace)
            }
            // Both this process and child processes of the worker may still have the other end of the socket open.
            own.end()
            let end = await reportedEnd
            switch try result.get() {
            case .unkillable(let process):
                logger.warning(
                    "A worker cannot be killed",
                    metadata: ["worker.name": "\(name)", "process.id": "\(process.id)"]
                )
                return .stopped(remaining: process)
            case .ended(let ending):
                if Task.isCancelled { return .stopped(remaining: nil) }
                logger.debug(
                    "A worker has ended",
                    metadata: ["worker.name": "\(name)", "worker.status": "\(ending)"]
                )
                return .reported(
                    end ?? Self.failure("the process that staged the packs \(ending.text)")
                )
            }
        } catch {
            if Task.isCancelled { return .stopped(remaining: nil) }
            var metadata = error.metadata
            metadata["worker.name"] = "\(name)"
            logger.error("A worker could not be started", metadata: metadata)
            return .reported(Self.failure("\(error)"))
        }
    }

    private static func result<Value>(
        _ body: () async throws(FileError) -> Value
    ) async -> Result<Value, FileError> {
        do throws(FileError) {
            return .success(try await body())
        } catch {
            return .failure(error)
        }
    }

    private static func failure(_ reason: String) -> StagingEnd {
        StagingEnd(TransferFailure(.storage, reason: reason), pendingReason: .backoff)
    }

    private func worker(
        for job: StagingJob,
        owner: SessionRecord,
        name: String,
        channel: MessageSocket
    ) async throws(FileError) -> UserProgram {
        guard let program else {
            throw FileError("start", path: "stagepack", errno: .noSuchFileOrDirectory)
        }
        let groups = launcher.groups
        return try await withBlockingThread { () throws(FileError) in
            let identity = try HandlerLauncher.identity(
                owner.user,
                rights: owner.rights,
                for: program
            )
            var worker = UserProgram(
                path: program,
                arguments: ["staging-worker"],
                environment: environment(for: job, user: owner.user),
                directory: "/",
                user: identity,
                controlGroup: try groups?.makeGroup(name, of: owner.user)
            )
            worker.channel = channel
            return worker
        }
    }

    /// Returns the environment: the user's base environment, the job's variables, and the daemon's proxies.
    private func environment(for job: StagingJob, user: UInt32) -> [String: String] {
        var variables = HandlerLauncher.variables(of: Account(user: user))
        variables["CURL_CA_BUNDLE"] = configuration.certificateAuthorities
        variables.merge(job.environment ?? [:]) { _, own in own }
        variables["http_proxy"] = configuration.httpProxy.map { proxy($0, for: user) }
        variables["https_proxy"] = configuration.httpsProxy.map { proxy($0, for: user) }
        if !configuration.proxyExceptions.isEmpty {
            variables["no_proxy"] = configuration.proxyExceptions
        }
        return variables
    }

    /// Returns a proxy for the worker of a user: without the name and the password of the daemon's configuration if
    /// that is another user's, who could read them.
    private func proxy(_ proxy: String, for user: UInt32) -> String {
        user == UserIdentity.current.user ? proxy : ProxyAddress.withoutUser(proxy)
    }

    /// Adds to the end of a worker whose proxy requires credentials that the configuration has them.
    private func explain(_ end: StagingEnd, of user: UInt32) -> StagingEnd {
        let proxies = [configuration.httpProxy, configuration.httpsProxy].compactMap(\.self)
        guard end.failure?.status == 407,
            proxies.contains(where: { proxy($0, for: user) != $0 })
        else { return end }
        var end = end
        end.failure?.reason +=
            "; the daemon's configuration has a password, which it keeps from the workers of users"
        return end
    }

    /// Reads messages of a worker until it closes the socket; returns the end that it reported.
    private static func listen(to socket: MessageSocket, transfer live: LiveTransfer) -> StagingEnd?
    {
        var end: StagingEnd?
        // No message of a worker has files: one with files ends the worker.
        while let message = try? socket.receiveBytes() {
            // Limits the processor time that a worker can cause by sending messages without pause.
            usleep(10_000)
            guard let update = decode(message) else { continue }
            live.take(update)
            guard let reportedEnd = update.end else { continue }
            do throws(ControlRefusal) {
                try RequestLimits.check(reportedEnd)
                end = reportedEnd
            } catch {
                end = failure("\(error)")
            }
        }
        // A worker that says more ends by that.
        socket.end()
        return end
    }

    /// Returns a message of a worker; `nil` if it is invalid, or has too many combining characters in a row, which are
    /// slow to compare.
    private static func decode(_ message: [UInt8]) -> WorkerMessage? {
        let limit = CombiningSequence.quotationLimit
        guard CombiningSequence.excess(inJSON: message.span, limit: limit) == nil
        else { return nil }
        // Invalid messages are ignored.
        return try? ControlFormat.decode(WorkerMessage.self, from: Data(message))
    }
}

extension ChildProcess.Ending {
    /// The end of the process, as a predicate for a message.
    fileprivate var text: String {
        switch self {
        case .exited(let status): "ended with status \(status)"
        case .signalled(let signal): "was ended by signal \(signal)"
        case .unknown: "ended with an unknown status"
        }
    }
}
