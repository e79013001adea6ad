public import Logging
import StageArchive
public import StageContainer
public import StageModel
package import StageSystem
public import StageTransfer
public import SystemPackage

/// Options for staging packs.
public struct StagerOptions: Sendable {
    /// The configuration of transfers.
    public var transfer: TransferConfiguration
    /// The way to unpack archives.
    public var unpacking: Unpacking
    /// The maximum number of packs staged concurrently, in any phase.
    public var concurrentPacks: Int
    /// The maximum number of packs unpacked concurrently.
    public var concurrentUnpacking: Int
    /// The number of generations to keep per pack in addition to the current one.
    public var keptGenerations: Int
    /// The domains that content may come from; a leading `*.` matches any number of labels; `nil` for all.
    public var allowedDomains: [String]?
    /// Returns the current time, in seconds since 1970.
    public var now: @Sendable () -> Int64
    /// Returns whether a pack may still be published; called while the lock of the pack is held, before its download
    /// and before its publication.
    package var mayPublish: @Sendable () -> Bool = { true }
    /// Time limit of the wait for another process that works on a pack, after which the pack fails with
    /// ``ContainerError/busy(_:)``; `nil` to wait until that process has ended.
    package var lockTimeLimit: Duration?

    /// Ways to unpack archives.
    @nonexhaustive
    public enum Unpacking: Hashable, Sendable {
        /// A thread of this process that confines itself to the staging area; not available to root.
        case thread
        /// A process per archive, sandboxed, with resource limits: the program to start, and its arguments.
        case process(FilePath, arguments: [String])
    }

    /// The default for ``keptGenerations``.
    package static let usualGenerations = 1

    /// Creates options for use in a library: unpacking in a confined thread, 16 concurrent packs, and one kept
    /// generation besides the current one.
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

/// Stages packs: downloads, verifies, unpacks and publishes them.
///
/// Create one with ``withStager(_:logger:perform:)``. Several stagers, also in different processes, may use
/// one container: one of them stages a pack, and the others find it staged.
public struct Stager: Sendable {
    let engine: TransferEngine
    let unpacker: Unpacker
    let unpacking: UnpackingQueue
    /// Patches are decoded one at a time, since each needs memory for parts of two versions.
    let patching = UnpackingQueue(width: 1)
    let options: StagerOptions
    let logger: Logger

    /// Stages the packs of a plan in its order, and returns the outcome of each.
    ///
    /// The failure of a pack does not stop the others, and its current generation stays as it is. If the task
    /// is cancelled, the next call resumes the downloads.
    ///
    /// - Parameters:
    ///   - plan: The plan.
    ///   - manifest: The manifest that the plan was made from.
    ///   - container: The container to stage in.
    ///   - isOffline: Pass `true` to use no network. Packs whose content the container does not keep are left, and have
    ///     no outcome.
    ///   - report: Receives all events, on several threads.
    /// - Returns: The outcome of each pack to stage.
    public func stage(
        _ plan: Plan,
        of manifest: AcceptedManifest,
        in container: Container,
        isOffline: Bool = false,
        report: @escaping @Sendable (PackID, StagingEvent) -> Void = { _, _ in }
    ) async -> [PackID: StagingOutcome] {
        let publisher = Publisher(container: container)
        let sharing = ArchiveSharing(plan.packsToStage)
        let reservations = await makeReservations(for: plan, in: container)
        return await withTaskGroup(of: (PackID, StagingOutcome?).self) { group in
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
                        reservations: reservations,
                        report: { report(id, $0) },
                        mayReplaceObjects: entry.mayReplaceObjects
                    )
                    let outcome: StagingOutcome? =
                        if isOffline {
                            await work.stageKept(reason)
                        } else {
                            await work.stage(reason, through: publisher)
                        }
                    if let outcome { report(id, .ended(outcome)) }
                    return (id, outcome)
                }
            }
            for await (id, outcome) in group { outcomes[id] = outcome }
            return outcomes
        }
    }

    /// Creates the reservations of a run, with the space that is free now.
    private func makeReservations(
        for plan: Plan,
        in container: Container
    ) async -> SpaceReservations {
        // A single pack shares the space with none, and compares what is free when it needs it.
        guard plan.packsToStage.count > 1 else { return SpaceReservations(.unknown, for: []) }
        // Staging a pack reports errors of the file system.
        let free = await withBlockingThread { try? container.root.freeSpace() }
        return SpaceReservations(free.map { AvailableSpace($0) } ?? .unknown, for: plan.entries)
    }
}

extension Stager {
    /// Runs `body` with a stager that has the same options, its own connections, and additional user names and
    /// passwords, keyed by the URL of a server.
    package func withCredentials<Result: Sendable>(
        _ credentials: [String: BasicCredential],
        perform body: (Stager) async -> Result
    ) async -> Result {
        var options = options
        for (url, credential) in credentials {
            options.transfer.add(credential, forOriginOf: url)
        }
        return await withStager(options, logger: logger, perform: body) { _ in
            // If the system refuses another thread, the requests go without the credentials, and the server refuses them.
            await body(self)
        }
    }
}

/// Runs `body` with a stager, and ends the stager's threads and processes when `body` returns or throws.
///
/// - Throws: ``StageError/transfer(_:)`` if the system refuses a thread, and the errors of `body`.
public func withStager<Result: Sendable>(
    _ options: StagerOptions,
    logger: Logger,
    perform body: (Stager) async throws -> Result
) async throws -> Result {
    try await withStager(options, logger: logger, perform: body) { error in
        throw StageError.transfer(.storage(error))
    }
}

/// Runs `body` with a stager, and ends the stager's threads and processes when `body` returns or throws, or runs
/// `other` if the system refuses a thread.
package func withStager<Result: Sendable, Failure: Error>(
    _ options: StagerOptions,
    logger: Logger,
    perform body: (Stager) async throws(Failure) -> Result,
    orElse other: (FileError) async throws(Failure) -> Result
) async throws(Failure) -> Result {
    let unpacker: Unpacker =
        switch options.unpacking {
        case .thread: Unpacker(.thread, logger: logger)
        case .process(let program, let arguments):
            Unpacker(.process(executable: program, arguments: arguments), logger: logger)
        }
    return try await withTransferEngine(
        options.transfer,
        logger: logger,
        run: { (engine) async throws(Failure) in
            try await body(
                Stager(
                    engine: engine,
                    unpacker: unpacker,
                    unpacking: UnpackingQueue(width: options.concurrentUnpacking),
                    options: options,
                    logger: logger
                )
            )
        },
        orElse: other
    )
}
