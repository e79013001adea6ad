public import Logging
import StageArchive
public import StageContainer
public import StageModel
public import StageTransfer
public import SystemPackage

/// How packs are staged.
public struct StagerOptions: Sendable {
    /// How bytes are transferred.
    public var transfer: TransferConfiguration
    /// What unpacks archives.
    public var unpacking: Unpacking
    /// How many packs are worked on at once, in whatever phase they are.
    public var concurrentPacks: Int
    /// How many packs are unpacked at once.
    public var concurrentUnpacking: Int
    /// How many generations beside the current one are kept of a pack.
    public var keptGenerations: Int
    /// The domains that archives may come from, `*.` standing for any number of labels; `nil` for all.
    public var allowedDomains: [String]?
    /// The time, in seconds since 1970.
    public var now: @Sendable () -> Int64

    /// What unpacks archives.
    public enum Unpacking: Hashable, Sendable {
        /// A thread of this process that confines itself to the staging area; not for root.
        case thread
        /// A process for each archive, confined as a whole, with limits on its resources: the program that
        /// makes them, and its arguments.
        case process(FilePath, arguments: [String])
    }

    /// The generations beside the current one that are kept where nothing else is said.
    package static let usualGenerations = 1

    /// Creates options that suit a library: a confined thread, 16 packs at once, one generation kept
    /// beside the current one.
    public init(
        transfer: TransferConfiguration = TransferConfiguration(),
        unpacking: Unpacking = .thread,
        now: @escaping @Sendable () -> Int64
    ) {
        self.transfer = transfer
        self.unpacking = unpacking
        concurrentPacks = 16
        concurrentUnpacking = 2
        keptGenerations = Self.usualGenerations
        allowedDomains = nil
        self.now = now
    }
}

/// Stages packs: fetches them, verifies, unpacks and publishes them.
///
/// Use ``withStager(_:logger:_:)`` to make one. Any number of stagers, in any number of processes, may
/// work on one container: each pack is worked on by one of them, and the others find it staged.
public struct Stager: Sendable {
    let engine: TransferEngine
    let unpacker: Unpacker
    let unpacking: UnpackingQueue
    let options: StagerOptions
    let logger: Logger

    /// Stages the packs of a plan, in its order, and returns how each ended.
    ///
    /// A pack that fails does not stop the others, and what was staged before stays as it is. When the
    /// task is cancelled, what was received stays and the next call goes on from there.
    ///
    /// - Parameters:
    ///   - plan: What to stage.
    ///   - manifest: The manifest that the plan was made from.
    ///   - container: Where to.
    ///   - report: Told of everything that happens, from several threads.
    /// - Returns: The outcome of each pack that the plan stages.
    public func stage(
        _ plan: Plan,
        of manifest: AcceptedManifest,
        in container: Container,
        report: @escaping @Sendable (PackID, StagingEvent) -> Void = { _, _ in }
    ) async -> [PackID: StagingOutcome] {
        let publisher = Publisher(container: container)
        let sharing = ArchiveSharing(plan.packsToStage)
        return await withTaskGroup(of: (PackID, StagingOutcome).self) { group in
            var outcomes: [PackID: StagingOutcome] = [:]
            var running = 0
            for entry in plan.entries {
                guard case .stage(let reason) = entry.decision else { continue }
                if running == options.concurrentPacks, let (id, outcome) = await group.next() {
                    outcomes[id] = outcome
                    running -= 1
                }
                running += 1
                group.addTask {
                    let id = entry.pack.id
                    let work = PackWork(
                        stager: self,
                        manifest: manifest,
                        container: container,
                        pack: entry.pack,
                        sharing: sharing,
                        report: { report(id, $0) }
                    )
                    let outcome = await work.stage(reason, through: publisher)
                    report(id, .ended(outcome))
                    return (id, outcome)
                }
            }
            for await (id, outcome) in group { outcomes[id] = outcome }
            return outcomes
        }
    }
}

extension Stager {
    /// Runs `body` with a stager that has the same options and sends these user names and passwords, by the
    /// URL of a server, over connections of its own.
    package func withCredentials<Result: Sendable>(
        _ credentials: [String: BasicCredential],
        _ body: (Stager) async -> Result
    ) async -> Result {
        var options = options
        for (url, credential) in credentials {
            options.transfer.add(credential, forOriginOf: url)
        }
        return await withStager(options, logger: logger, body)
    }
}

/// Runs `body` with a stager, and ends its threads and processes when `body` returns or throws.
public func withStager<Result: Sendable, Failure: Error>(
    _ options: StagerOptions,
    logger: Logger,
    _ body: (Stager) async throws(Failure) -> Result
) async throws(Failure) -> Result {
    let unpacker: Unpacker =
        switch options.unpacking {
        case .thread: Unpacker(.thread, logger: logger)
        case .process(let program, let arguments):
            Unpacker(.process(executable: program, arguments: arguments), logger: logger)
        }
    return try await withTransferEngine(options.transfer, logger: logger) {
        (engine) async throws(Failure) in
        try await body(
            Stager(
                engine: engine,
                unpacker: unpacker,
                unpacking: UnpackingQueue(width: options.concurrentUnpacking),
                options: options,
                logger: logger
            )
        )
    }
}
