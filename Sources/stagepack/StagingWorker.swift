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

/// A worker: it reads an order from the socket that is its standard input, confines its process to the files that
/// the order takes, carries it out, and writes what happens to the socket.
///
/// Nothing of a server is read before the process is confined.
struct StagingWorker: Sendable {
    private let channel: MessageSocket
    private let request: Result<StagingRequest, StagingFailure>

    /// Reads the order and confines the process, if that is what it was started for.
    ///
    /// The process must have one thread: those that it starts are confined as it is.
    static func startIfAsked() -> StagingWorker? {
        guard CommandLine.arguments.dropFirst().elementsEqual([StagingWorkerCommand.name]) else {
            return nil
        }
        let channel = MessageSocket(adopting: .standardInput)
        let order: StagingOrder
        do throws(CommandFailure) {
            order = try self.order(channel)
        } catch {
            error.endProgram(isHook: false)
        }
        return StagingWorker(
            channel: channel,
            request: Result { () throws(StagingFailure) in try confinedRequest(order) }
        )
    }

    /// Carries the order out, and says how that ended.
    func run() async -> ExitStatus {
        let voice = WorkerVoice(channel)
        let (end, interruption) = await withInterruption(after: nil) { await carryOut(voice) }
        guard interruption == nil, let end else { return .interrupted }
        var message = WorkerMessage()
        message.end = end
        voice.say(message)
        return .success
    }

    private static func order(_ channel: MessageSocket) throws(CommandFailure) -> StagingOrder {
        do {
            let message = try channel.receive()
            return try ControlFormat.decode(
                StagingOrder.self,
                from: Data(message?.bytes ?? [])
            )
        } catch {
            throw .usage("expected an order of the daemon on standard input: \(error)")
        }
    }

    /// The request of an order, to whose files this process is confined when this returns.
    ///
    /// - Throws: ``StagingFailure`` also where the kernel confines less than this process needs: root's needs
    ///   everything.
    private static func confinedRequest(
        _ order: StagingOrder
    ) throws(StagingFailure) -> StagingRequest {
        let request = try request(order)
        let restrictions: Sandbox.Restrictions
        do throws(FileError) {
            restrictions = try request.sandbox().enter()
        } catch {
            throw StagingFailure(ContainerError.file(error))
        }
        if !restrictions.include(.required) {
            throw StagingFailure(
                StageError.content(.notConfined(restrictions.files ? .callFilter : .landlock))
            )
        }
        if restrictions != .all {
            Log.logger.warning("The kernel confines packs' staging less than it could")
        }
        return request
    }

    private func carryOut(_ voice: WorkerVoice) async -> StagingEnd? {
        do throws(StagingFailure) {
            let request = try request.get()
            let service = StagingService(request, logger: Log.logger) { voice.tell($0) }
            return StagingEnd(of: try await service.stage().flatMap(\.failures))
        } catch {
            return StagingEnd(of: [error])
        }
    }

    private static func request(_ order: StagingOrder) throws(StagingFailure) -> StagingRequest {
        var target = StagingTarget(manifests: order.manifests ?? [])
        if let application = order.application {
            target = try StagingTarget(registered: try id(application))
        }
        target.container = order.container.map { FilePath($0) }
        target.applicationVersion = order.applicationVersion
        do throws(CommandFailure) {
            let network = try parsed(NetworkOptions.self, [])
            var request = try Session(target, network: network).request(try packs(order))
            request.usesDaemon = false
            request.waitsForConditions = false
            return request
        } catch {
            throw .invalidRequest("the daemon's order: \(error.message)")
        }
    }

    private static func id(_ text: String) throws(StagingFailure) -> ApplicationID {
        do throws(ValueError) {
            return try ApplicationID(text)
        } catch {
            throw .invalidRequest("the daemon's order: \(error)")
        }
    }

    private static func packs(_ order: StagingOrder) throws(CommandFailure) -> StagingRequest.Packs
    {
        do throws(ValueError) {
            guard let packs = order.packs else {
                let event = order.event.flatMap(ContentRequest.init(rawValue:))
                return .event(event, essentialOnly: order.isEssentialOnly ?? false)
            }
            var ids: Set<PackID> = []
            for text in packs { ids.insert(try PackID(text)) }
            return order.isRepair ?? false ? .damaged(ids) : .named(ids)
        } catch {
            throw .usage("\(error)")
        }
    }

    private static func parsed<Options: ParsableArguments>(
        _ type: Options.Type,
        _ arguments: [String]
    ) throws(CommandFailure) -> Options {
        do {
            return try type.parse(arguments)
        } catch {
            throw .usage(type.message(for: error))
        }
    }
}

/// The worker's end of the connection to the daemon.
private final class WorkerVoice: Sendable {
    private let channel: MessageSocket
    private let state = Mutex(State())
    /// Whether the worker was told to end because the daemon has.
    private let hasGivenUp = Mutex(false)

    private struct State {
        var progress: StagingProgress?
        var lastTime: ContinuousClock.Instant?
    }

    init(_ channel: MessageSocket) { self.channel = channel }

    /// Tells of the progress, a few times a second.
    func tell(_ update: StagingUpdate) {
        let message = state.withLock { state -> WorkerMessage? in
            switch update {
            case .began(let plan): state.progress = StagingProgress(plan)
            case .pack(let id, let event): state.progress?.apply(event, to: id)
            default: return nil
            }
            let now = ContinuousClock.now
            guard let progress = state.progress,
                state.lastTime.map({ now - $0 >= .milliseconds(250) }) ?? true
            else { return nil }
            state.lastTime = now
            var message = WorkerMessage()
            message.bytesReceived = progress.received
            message.bytesExpected = progress.downloadSize
            return message
        }
        if let message { say(message) }
    }

    func say(_ message: WorkerMessage) {
        do {
            try channel.send(Array(try ControlFormat.encode(message)))
        } catch {
            // The daemon has ended: the next daemon starts a worker of its own, so this one ends.
            Log.logger.debug("The daemon was not told", metadata: ["error": "\(error)"])
            if !hasGivenUp.withLock({ hasGivenUp in
                defer { hasGivenUp = true }
                return hasGivenUp
            }) {
                // Of the process: a thread of libdispatch's would keep a signal of its own to itself.
                kill(getpid(), SIGTERM)
            }
        }
    }
}
