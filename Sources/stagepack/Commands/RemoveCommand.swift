import ArgumentParser
import FoundationEssentials
import Logging
import StageContainer
import StageControl
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

struct RemoveCommand: ChangingSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "remove",
        abstract: "Remove staged packs.",
        discussion: """
            Removes this user's copy, with incomplete downloads of it, and cancels transfers by which the daemon would bring it \
            again; what is left of a pack in another container is named. An \
            application that has a pack open keeps reading it; the next 'gc' after the application \
            has ended removes its files.
            """
    )

    @Argument(
        help: "The packs.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var packs: [PackID]

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source)
        let client = await Self.discoverDaemon()
        var removal = try PackRemoval(session, client: client)
        var reports: [RemovalReport] = []
        var failure: CommandFailure?
        do throws(CommandFailure) {
            for prepared in try await removal.prepare(packs) {
                var report = try removal.remove(prepared)
                if !report.hasRemoved { report.similarPack = session.pack(similarTo: report.pack) }
                warn(of: report)
                reports.append(report)
            }
        } catch {
            failure = error
        }
        removal.keepSpareLocks()
        removal.remember()
        return try Console.conclude(
            change: reports,
            named: "packs",
            failure: failure,
            asJSON: json
        )
    }

    /// Returns a client of the daemon; `nil` without one, since no transfer can install a pack again then.
    private static func discoverDaemon() async -> ControlClient? {
        do throws(ControlError) {
            return try await ControlClient.discover(environment: ProcessEnvironment.current)
        } catch {
            // One that does not respond must not keep a user from freeing space.
            if error.mayHideTransfers { warnOfTransfers(["error": "\(error)"]) }
            return nil
        }
    }

    /// Warns that the daemon's transfers of removed packs may continue.
    fileprivate static func warnOfTransfers(_ metadata: Logger.Metadata) {
        Log.logger.warning(
            "The daemon may install the pack again: its transfers could not be cancelled",
            metadata: metadata
        )
    }

    private func warn(of report: RemovalReport) {
        guard !json else { return }
        // The summary says it, which '--quiet' leaves out.
        if messageOptions.quiet {
            for text in report.remainders {
                Console.note("stagepack: warning: \(report.pack): \(text)")
            }
        }
        if let similar = report.similarPack {
            Console.note(
                "stagepack: warning: pack '\(report.pack)' is not known: did you mean '\(similar)'?"
            )
        }
    }
}

/// The removal of a pack that was found to be possible.
private struct PreparedRemoval {
    var report: RemovalReport
    /// The position of the container that the pack is removed from; `nil` if there is none.
    var position: Int?
    /// The lock on the pack in that container.
    var lock: PackLock?
    /// True if readers use a copy in another container, so that this one may not contain the pack.
    var isOfOtherCopy = false
}

/// Removes packs from the containers that readers search, as far as this user may change them.
private struct PackRemoval {
    private let session: Session
    private let client: ControlClient?
    private let view: ContainerView
    /// The container of this user, which need not exist.
    private let own: FilePath
    /// The containers by position; `nil` for one that does not exist.
    private var containers: [Container?] = []
    /// The packs that were removed, by the position of their container.
    private var removed: [Int: Set<PackID>] = [:]

    /// Opens the containers; those of a registered application need not exist.
    ///
    /// - Throws: ``CommandFailure`` if no container is named, or if the one that the options name does not exist.
    init(_ session: Session, client: ControlClient?) throws(CommandFailure) {
        guard let own = session.knownContainer else { throw .noContainer }
        self.session = session
        self.client = client
        self.own = own
        view = try session.view()
        do throws(ContainerError) {
            guard !view.isEmpty || session.target.container == nil else {
                throw ContainerError.absence(at: own)
            }
            for path in view.containers {
                containers.append(try Container.open(path, for: .makingRoom))
            }
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Finds the containers of the packs, cancels the daemon's transfers of them, and acquires their locks.
    ///
    /// Cancels nothing if a pack is pinned, or only in a container that this user cannot change.
    ///
    /// - Returns: The removals to perform, first those that may find nothing, and fail then.
    func prepare(_ packs: [PackID]) async throws(CommandFailure) -> [PreparedRemoval] {
        var removals: [PreparedRemoval] = []
        for id in packs where !removals.contains(where: { $0.report.pack == id }) {
            removals.append(try find(id))
        }
        var cancelled: [Int64] = []
        do throws(ContainerError) {
            // Other processes wait in the same order while they hold locks.
            let order = removals.indices.sorted {
                removals[$0].report.pack < removals[$1].report.pack
            }
            for index in order {
                let id = removals[index].report.pack
                let position = removals[index].position
                // Without a container, the daemon may be about to make it.
                let tasks = await withdraw(id, from: position.map { view.containers[$0] } ?? own)
                cancelled += tasks
                if !tasks.isEmpty { removals[index].report.transfersCancelled = tasks }
                guard let position, let container = containers[position] else { continue }
                // The worker of a cancelled transfer holds its packs until it has ended.
                let limit = cancelled.isEmpty ? Duration.zero : Self.workerTimeout
                guard let lock = try await container.waitForLock(id, within: limit) else {
                    throw .busy(id)
                }
                try container.checkRemovability(lock)
                removals[index].lock = lock
            }
        } catch {
            // Cancelled transfers stay cancelled.
            var failure = CommandFailure(error)
            failure.message += RemovalReport.text(ofCancelled: cancelled)
            throw failure
        }
        return removals.filter(\.isOfOtherCopy) + removals.filter { !$0.isOfOtherCopy }
    }

    /// Finds the container to remove a pack from: the one that readers use, if this user may change it, or else another one.
    private func find(_ id: PackID) throws(CommandFailure) -> PreparedRemoval {
        let copies: [ContainerView.Copy]
        let found: (position: Int, container: Container)?
        do throws(ContainerError) {
            copies = try view.copies(of: id)
            found = container(for: copies.map(\.container).min())
            if let found, let pin = try found.container.reader.pin(of: id) {
                throw .pinned(id, version: pin.version)
            }
        } catch {
            throw CommandFailure(error)
        }
        if found == nil, let copy = copies.first { throw Self.notOurs(id, copy: status(copy)) }
        var removal = PreparedRemoval(report: RemovalReport(pack: id))
        removal.position = found?.position
        removal.isOfOtherCopy =
            !copies.isEmpty && !copies.contains { $0.container == found?.position }
        return removal
    }

    /// Performs a removal.
    ///
    /// - Throws: ``CommandFailure`` if the pack is only in a container that this user cannot change.
    mutating func remove(_ prepared: PreparedRemoval) throws(CommandFailure) -> RemovalReport {
        var report = prepared.report
        guard let position = prepared.position, let container = containers[position],
            let lock = prepared.lock
        else { return report }
        do throws(ContainerError) {
            let removal = try container.remove(lock)
            report.add(removal)
            if report.hasRemoved { removed[position, default: []].insert(report.pack) }
            try removal.check()
            report.location = location(position)
            let remaining = try view.copies(of: report.pack).filter { $0.container != position }
            if !remaining.isEmpty { report.remaining = remaining.map(status) }
        } catch {
            // Cancelled transfers stay cancelled.
            var failure = CommandFailure(error)
            failure.message += RemovalReport.text(ofCancelled: report.transfersCancelled ?? [])
            throw failure
        }
        if !report.hasRemoved, let copy = report.remaining?.first {
            throw Self.notOurs(report.pack, copy: copy)
        }
        return report
    }

    /// Returns the failure for a pack that is only in a container of another user.
    private static func notOurs(
        _ id: PackID,
        copy: StatusReport.CopyStatus
    ) -> CommandFailure {
        .notOurs(
            id,
            in: FilePath(copy.container),
            location: copy.location,
            hint: HintSource.current.local("remove", id.text)
        )
    }

    /// Returns the container to remove a pack from: the one with the copy in use, or one that may have single
    /// files of it.
    private func container(for staged: Int?) -> (position: Int, container: Container)? {
        // For a container that the options name, and for the user's own, the error of the removal is more precise than a
        // missing write permission.
        let isNamed = staged != nil && session.target.container != nil
        for position in [staged].compactMap(\.self) + view.positions {
            guard let container = containers[position] else { continue }
            let isOwn = position == staged && view.containers[position] == session.knownContainer
            if isNamed || isOwn || container.isWritable() { return (position, container) }
        }
        return nil
    }

    /// Cancels the daemon's transfers that would install the pack again, and returns their numbers.
    private func withdraw(_ id: PackID, from container: FilePath) async -> [Int64] {
        guard let client else { return [] }
        let withdrawal = await client.withdraw(id) { [session] job in
            session.changesContainer(of: job, at: container)
        }
        if let problem = withdrawal.problem {
            RemoveCommand.warnOfTransfers(["pack.id": "\(id)", "error": "\(problem)"])
        }
        return withdrawal.cancelled
    }

    /// The maximum time that the worker of a cancelled transfer takes to end.
    private static let workerTimeout = Duration.seconds(15)

    private func location(_ position: Int) -> ContainerLocation? {
        session.location(of: view.containers[position])
    }

    private func status(_ copy: ContainerView.Copy) -> StatusReport.CopyStatus {
        StatusReport.CopyStatus(
            container: view.containers[copy.container].string,
            location: location(copy.container),
            version: copy.version
        )
    }

    /// Records the removals in the histories that `why` reads; only logs a failure to do so.
    func remember() {
        for (position, packs) in removed {
            do throws(ContainerError) {
                try containers[position]?
                    .remember(removed: packs, at: Int64(Date().timeIntervalSince1970))
            } catch {
                Log.logger.warning("The removal was not recorded", metadata: ["error": "\(error)"])
            }
        }
    }

    func keepSpareLocks() {
        for case let container? in containers where container.isWritable() {
            container.keepSpareLock()
        }
    }
}

/// Output of `remove` for one pack.
struct RemovalReport: Encodable, CustomStringConvertible {
    var pack: PackID
    var generationsRemoved = 0
    var generationsInUse = 0
    /// The number of files of incomplete downloads that were removed; `nil` for none.
    var downloadsRemoved: Int?
    /// The numbers of the daemon's transfers of the pack that were cancelled; `nil` for none.
    var transfersCancelled: [Int64]?
    /// Set if single files of the pack, or a part of it that was being staged, were removed; `nil` otherwise.
    var singleFilesRemoved: Bool?
    /// The owner of the container, user or system; `nil` for a container at another path.
    var location: ContainerLocation?
    /// A pack with a similar identifier, if neither a container nor a manifest has this one; `nil` otherwise.
    var similarPack: PackID?
    /// Remaining copies in other containers; `nil` if there are none.
    var remaining: [StatusReport.CopyStatus]?

    init(pack: PackID) { self.pack = pack }

    mutating func add(_ removal: Removal) {
        generationsRemoved = removal.generations
        generationsInUse = removal.inUse
        if removal.downloads > 0 { downloadsRemoved = removal.downloads }
        if removal.leftovers > 0 { singleFilesRemoved = true }
    }

    /// True if parts of the pack were found and removed.
    var hasRemoved: Bool {
        generationsRemoved > 0 || generationsInUse > 0 || singleFilesRemoved == true
            || downloadsRemoved != nil || transfersCancelled != nil
    }

    var description: String {
        "\(pack): \(result)" + Self.text(ofCancelled: transfersCancelled ?? [])
            + remainders.map { "; \($0)" }.joined()
    }

    /// A clause for each remaining copy, with the command that removes it.
    var remainders: [String] {
        (remaining ?? []).map { copy in
            let holder = copy.location.map { "the \($0.rawValue)'s container" } ?? copy.container
            let command =
                copy.location == .system ? HintSource.current.local("remove", pack.text) : nil
            return "\(holder) still has version \(copy.version ?? 0)"
                + (command.map { ": as root, run \($0) to remove it" } ?? "")
        }
    }

    /// The clauses that name cancelled transfers, to append to a message.
    static func text(ofCancelled tasks: [Int64]) -> String {
        tasks.map { "; transfer \($0) was cancelled" }.joined()
    }

    private var result: String {
        if generationsInUse > 0 { return "removed once its readers have ended" }
        return hasRemoved ? "removed" : "was not staged"
    }
}
