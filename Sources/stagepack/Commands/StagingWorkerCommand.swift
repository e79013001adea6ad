import ArgumentParser
import FoundationEssentials
import Glibc
import Logging
import StageContainer
import StageControl
import StageEngine
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// The process by which the daemon has packs staged for a user; started by the daemon alone.
///
/// It reads an order from the socket that is its standard input, and writes what happens to it.
struct StagingWorkerCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "staging-worker",
        abstract: "Stage packs for the daemon.",
        shouldDisplay: false
    )

    var printsJSON: Bool { false }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let channel = MessageSocket(adopting: .standardInput)
        let order = try Self.order(channel)
        let voice = WorkerVoice(channel)
        let (end, interruption) = await withInterruption(after: nil) {
            await Self.carryOut(order, voice)
        }
        guard interruption == nil, let end else { return .interrupted }
        var update = StagingUpdate()
        update.end = end
        voice.say(update)
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

    private static func carryOut(_ order: StagingOrder, _ voice: WorkerVoice) async -> StagingEnd? {
        do throws(CommandFailure) {
            var run = StagingRun(
                session: try session(order),
                output: try parsed(OutputOptions.self, ["--quiet", "--progress", "none"]),
                wanted: try wanted(order)
            )
            run.role = .worker { voice.tell($0) }
            let reports = try await run.run()
            return StagingEnd(of: reports.flatMap(\.failures))
        } catch {
            return StagingEnd(of: [FailureReport(error)])
        }
    }

    private static func session(_ order: StagingOrder) throws(CommandFailure) -> Session {
        var arguments: [String] = []
        if let application = order.application { arguments += ["--app", application] }
        for url in order.manifests ?? [] { arguments += ["--manifest", url] }
        if let container = order.container { arguments += ["--container", container] }
        if let version = order.applicationVersion {
            arguments += ["--application-version", version]
        }
        return try Session(
            try parsed(SourceOptions.self, arguments),
            try parsed(NetworkOptions.self, [])
        )
    }

    private static func wanted(_ order: StagingOrder) throws(CommandFailure) -> StagingRun.Wanted {
        do throws(ValueError) {
            guard let packs = order.packs else {
                let event = order.event.flatMap(ContentRequest.init(rawValue:))
                return .event(event, essentialOnly: order.isEssentialOnly ?? false)
            }
            var ids: Set<PackID> = []
            for text in packs { ids.insert(try PackID(text)) }
            return order.isRepair ?? false ? .repair(ids) : .packs(ids)
        } catch {
            throw .usage("the daemon's order: \(error)")
        }
    }

    private static func parsed<Options: ParsableArguments>(
        _ type: Options.Type,
        _ arguments: [String]
    ) throws(CommandFailure) -> Options {
        do {
            return try type.parse(arguments)
        } catch {
            throw .usage("the daemon's order: \(type.message(for: error))")
        }
    }
}

/// The worker's end of the connection to the daemon.
private final class WorkerVoice: Sendable {
    private let channel: MessageSocket
    private let lastTime = Mutex<ContinuousClock.Instant?>(nil)
    /// Whether the worker was told to end because the daemon has.
    private let hasGivenUp = Mutex(false)

    init(_ channel: MessageSocket) { self.channel = channel }

    /// Tells of the progress, a few times a second.
    func tell(_ progress: StagingProgress) {
        let now = ContinuousClock.now
        let isDue = lastTime.withLock { last in
            guard last.map({ now - $0 >= .milliseconds(250) }) ?? true else { return false }
            last = now
            return true
        }
        guard isDue else { return }
        var update = StagingUpdate()
        update.bytesReceived = progress.received
        update.bytesExpected = progress.downloadSize
        say(update)
    }

    func say(_ update: StagingUpdate) {
        do {
            try channel.send(Array(try ControlFormat.encode(update)))
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
