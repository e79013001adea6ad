import ArgumentParser
import FoundationEssentials
import Glibc
import Logging
import StageArchive
import StageContainer
import StageControl
import StageEngine
import StageModel
import StageSystem
import StagingService
import Synchronization
import SystemPackage

/// A worker process of the daemon: reads a job from the socket on standard input, confines its process to
/// the files that the job needs, carries it out, and reports the progress to the socket.
///
/// Reads no data of a server before the process is confined.
struct StagingWorker: Sendable {
    private let channel: MessageSocket
    private let request: Result<StagingRequest, StagingFailure>

    /// Reads the job and confines the process; returns `nil` if the process was not started as a worker.
    ///
    /// First forbids other processes of the user to trace this one and to take its socket to the daemon.
    ///
    /// The process must have only one thread, since other existing threads would not be confined.
    static func startIfAsked() -> StagingWorker? {
        guard CommandLine.arguments.dropFirst().elementsEqual([StagingWorkerCommand.name]) else {
            return nil
        }
        ProcessSandbox.forbidTracing()
        let channel = MessageSocket(adopting: .standardInput)
        let job: WorkerJob
        do throws(CommandFailure) {
            job = try self.job(channel)
        } catch {
            error.endProgram(isHook: false)
        }
        return StagingWorker(
            channel: channel,
            request: Result { () throws(StagingFailure) in try confinedRequest(job) }
        )
    }

    /// Carries out the job, and reports its end to the daemon.
    func run() async -> ExitStatus {
        let reporter = WorkerReporter(channel)
        let (end, interruption) = await withInterruption(after: nil) { await carryOut(reporter) }
        guard interruption == nil, let end else { return .interrupted }
        reporter.endProgress()
        var message = WorkerMessage()
        message.end = end
        reporter.send(message)
        return .success
    }

    private static func job(_ channel: MessageSocket) throws(CommandFailure) -> WorkerJob {
        do {
            let message = try channel.receive()
            return try ControlFormat.decode(
                WorkerJob.self,
                from: Data(message?.bytes ?? [])
            )
        } catch {
            throw .usage("expected a job of the daemon on standard input: \(error)")
        }
    }

    /// Returns the request of a job, after confining the process to the request's files.
    ///
    /// - Throws: ``StagingFailure`` also if the kernel cannot apply the required confinement, which for root
    ///   is the complete one.
    private static func confinedRequest(
        _ job: WorkerJob
    ) throws(StagingFailure) -> StagingRequest {
        var request = try request(job.job)
        request.isRepetition = job.isRepetition
        let restrictions: Sandbox.Restrictions
        do throws(FileError) {
            restrictions = try request.sandbox().enter()
        } catch {
            throw StagingFailure(ContainerError.file(error))
        }
        if !restrictions.isSuperset(of: .required) {
            throw StagingFailure(
                StageError.content(.notConfined(restrictions.files ? .callFilter : .landlock))
            )
        }
        if restrictions != .all {
            Log.logger.warning(
                "The kernel lacks sandbox features; staging runs with fewer restrictions"
            )
        }
        return request
    }

    private func carryOut(_ reporter: WorkerReporter) async -> StagingEnd? {
        do throws(StagingFailure) {
            let request = try request.get()
            let service = StagingService(request, logger: Log.logger) { reporter.report($0) }
            let staged = try await service.stageManifests()
            return StagingEnd(of: staged.failures + staged.results.flatMap(\.failures))
        } catch {
            return StagingEnd(of: [error])
        }
    }

    private static func request(_ job: StagingJob) throws(StagingFailure) -> StagingRequest {
        var target = StagingTarget(manifests: job.manifests ?? [])
        if let application = job.application {
            target = try StagingTarget(registered: try id(application))
        }
        target.container = job.container.map { FilePath($0) }
        target.applicationVersion = job.applicationVersion
        do throws(CommandFailure) {
            let network = try parsed(NetworkOptions.self, from: [])
            var request = try Session(target, network: network).request(try packs(job))
            request.usesDaemon = false
            request.waitsForConditions = false
            return request
        } catch {
            throw .invalidRequest("the daemon's job: \(error.message)")
        }
    }

    private static func id(_ text: String) throws(StagingFailure) -> ApplicationID {
        do throws(ValueError) {
            return try ApplicationID(text)
        } catch {
            throw .invalidRequest("the daemon's job: \(error)")
        }
    }

    private static func packs(_ job: StagingJob) throws(CommandFailure) -> StagingRequest.Packs {
        do throws(ValueError) {
            guard let packs = job.packs else {
                let event = job.event.flatMap(ContentRequest.init(rawValue:))
                return .event(event, essentialOnly: job.isEssentialOnly ?? false)
            }
            var ids: Set<PackID> = []
            for text in packs { ids.insert(try PackID(text)) }
            return job.isRepair ?? false ? .damaged(ids) : .named(ids)
        } catch {
            throw .usage("\(error)")
        }
    }

    private static func parsed<Options: ParsableArguments>(
        _ type: Options.Type,
        from arguments: [String]
    ) throws(CommandFailure) -> Options {
        do {
            return try type.parse(arguments)
        } catch {
            throw .usage(type.message(for: error))
        }
    }
}

/// The worker's end of the connection to the daemon.
private final class WorkerReporter: Sendable {
    private let channel: MessageSocket
    private let progress = Mutex<StagingProgress?>(nil)
    private let throttle = Throttle(interval: .milliseconds(250))
    /// Set once the worker ends itself because the daemon has ended.
    private let hasGivenUp = Mutex(false)

    init(_ channel: MessageSocket) { self.channel = channel }

    /// Reports the progress, at most four times a second.
    func report(_ update: StagingUpdate) {
        switch update {
        case .began(let plan): progress.withLock { $0 = StagingProgress(plan) }
        case .pack(let id, let event): progress.withLock { $0?.apply(event, to: id) }
        default: return
        }
        throttle.run { [self] in
            guard let progress = progress.withLock(\.self) else { return }
            var message = WorkerMessage()
            message.bytesReceived = progress.received
            message.bytesExpected = progress.downloadSize
            send(message)
        }
    }

    /// Reports progress that is pending, and none after it.
    func endProgress() { throttle.end() }

    func send(_ message: WorkerMessage) {
        do {
            try channel.send(Array(try ControlFormat.encode(message)))
        } catch {
            // The daemon has ended, and the next daemon starts a worker of its own, so this worker ends.
            Log.logger.debug("A report was not sent to the daemon", metadata: ["error": "\(error)"])
            if !hasGivenUp.withLock({ hasGivenUp in
                defer { hasGivenUp = true }
                return hasGivenUp
            }) {
                // Signals the process, not this thread: a thread of libdispatch blocks signals.
                kill(getpid(), SIGTERM)
            }
        }
    }
}
