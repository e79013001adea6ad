import ArgumentParser
import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

struct CollectGarbageCommand: ChangingSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "gc",
        abstract: "Remove what is no longer needed, and keep a container within its quota.",
        discussion: """
            Removes generations that are neither current nor read, except the previous one of each \
            pack, leftovers of crashes, and downloads that no manifest names. Those of files that an \
            extension requested stay for a week.

            Where there is a quota, removes previous generations next, then packs of the policy \
            'onDemand', then those of 'prefetch', least recently loaded packs first. Never removes \
            packs that are essential, pinned or read, nor packs that no manifest offers. If the quota \
            cannot be kept, removes no packs and ends with status 40. Without --app and --container, this is done in the \
            container of every application that is registered.
            """
    )

    @Flag(help: "Remove the previous generation of each pack, too.")
    var previous = false

    @Option(
        help: ArgumentHelp(
            "The bytes that packs may take, as 500MB, 20GB or 20GiB. Default: the smallest 'quota' of "
                + "the group's registrations.",
            valueName: "size"
        ),
        transform: ByteSize.parse
    )
    var quota: ByteCount?

    @Flag(help: "Print what would be removed, and why; downloads are not examined.")
    var dryRun = false

    @Flag(
        help: ArgumentHelp(
            "Remove the packs of applications that are no longer registered, in every "
                + "container of the system (as root) or of the user."
        )
    )
    var unregistered = false

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup var scope: ScopeOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    var changesPacks: Bool { !dryRun }

    mutating func validate() throws {
        try scope.check(with: source)
        if unregistered, source.app != nil || !source.manifest.isEmpty {
            throw ValidationError("--unregistered excludes --app and --manifest.")
        }
        if unregistered, previous || quota != nil {
            throw ValidationError("--unregistered excludes --previous and --quota.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        guard !unregistered else {
            let report = try UnregisteredReport.make(try Session(source), isDryRun: dryRun)
            let schema = OutputSchema("gc-unregistered")
            if dryRun {
                Console.print(report, failures: report.failures, asJSON: json, schema: schema)
            } else {
                Console.print(
                    change: report,
                    failures: report.failures,
                    asJSON: json,
                    schema: schema
                )
            }
            return report.failures.first?.status ?? .success
        }
        let scopes = try ContainerScopes(source)
        var report = GarbageReport(isDryRun: dryRun)
        var failures: [CommandFailure] = []
        for scope in scopes.scopes {
            do throws(CommandFailure) {
                guard let (part, refusal) = try await collect(scope, isOptional: scopes.isAll)
                else { continue }
                report.containers.append(part)
                failures += [refusal, scope.failure(of: part)].compactMap(\.self)
            } catch {
                guard scopes.isAll else { throw error }
                failures.append(error)
            }
        }
        let status = scopes.conclude(report, others: failures, asJSON: json, isChange: !dryRun)
        if report.containers.isEmpty, failures.isEmpty {
            scopes.noteNothingStaged(asJSON: json, changesOwn: true)
        }
        return status
    }

    /// Collects garbage in the container of a scope; returns `nil` if an optional one, or that of a registered application,
    /// does not exist, and otherwise the report, with the first error.
    private func collect(
        _ scope: ContainerScope,
        isOptional: Bool
    ) async throws(CommandFailure) -> (GarbageReport.Part, CommandFailure?)? {
        if isOptional, let own = scope.own, try scope.view().isMissing(own) { return nil }
        guard let container = try scope.session.existingContainer(for: .makingRoom) else {
            return nil
        }
        let path = container.root.path
        let quota = quota ?? scope.session.target.quota(of: path)
        var (part, refusal) =
            try await dryRun
            ? (plan(for: container, quota: quota), nil) : collect(in: container, quota: quota)
        part.container = path.string
        part.location = scope.location(of: path)
        return (part, refusal)
    }

    /// Returns the report of a dry run.
    private func plan(
        for container: Container,
        quota: ByteCount?
    ) throws(CommandFailure) -> GarbageReport.Part {
        do throws(StageError) {
            var policy = try EvictionPolicy(container.reader)
            try policy.measure(in: container.reader, includingPacks: false)
            var report = GarbageReport.Part()
            report.isDryRun = true
            report.add(policy.collect(includingPrevious: previous))
            if let quota { report.add(policy.evict(policy.excess(over: quota))) }
            report.generations = report.evicted.count { $0.isGeneration }
            report.inUse = policy.generations.count { $0.role != .current && $0.isLeased }
            report.compare(policy, with: quota)
            return report
        } catch {
            throw CommandFailure(error)
        }
    }

    private func collect(
        in container: Container,
        quota: ByteCount?
    ) async throws(CommandFailure) -> (GarbageReport.Part, CommandFailure?) {
        var report = GarbageReport.Part()
        var refusal: CommandFailure?
        do throws(ContainerError) {
            // Repeats the collection as long as it frees space, which lock files of the remaining steps may
            // need.
            var removal = Removal()
            while true {
                let more = try removeGarbage(container)
                (removal.inUse, removal.failure) = (0, nil)
                removal.add(more)
                guard more.failure != nil, more.hasFreed else { break }
            }
            report.add(removal)
            refusal = removal.failure.map { CommandFailure($0) }
        } catch {
            throw CommandFailure(error)
        }
        guard let quota else { return (report, refusal) }
        do throws(StageError) {
            var policy = try EvictionPolicy(container.reader)
            let evictions = policy.evict(policy.excess(over: quota))
            let (gone, failure) =
                await container.evictAndRemember(evictions, logger: Log.logger)
            report.add(gone)
            report.generations += gone.count { !$0.isOfPack }
            report.compare(try EvictionPolicy(container.reader), with: quota)
            return (report, refusal ?? failure.map { CommandFailure($0) })
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Removes obsolete generations, leftovers and partial content; what cannot be removed stays.
    private func removeGarbage(_ container: Container) throws(ContainerError) -> Removal {
        var removal = Removal()
        func attempt(_ step: () throws(ContainerError) -> Removal) {
            do throws(ContainerError) {
                removal.add(try step())
            } catch {
                removal.failure = removal.failure ?? error
            }
        }
        for id in try container.reader.packsWithGenerations() {
            attempt { () throws(ContainerError) in
                // Skips a pack that another process is staging.
                guard let lock = try container.attemptLock(id) else { return Removal() }
                return try container.removeObsoleteGenerations(lock, keeping: previous ? 0 : 1)
            }
        }
        let offered = try container.reader.offeredContent()
        if let offered {
            attempt { () throws(ContainerError) in
                try container.removePartialContent { offered.all.contains($0.description) }
            }
        }
        let now = Int64(Date().timeIntervalSince1970)
        removal.add(container.removeLeftovers(now: now, offering: offered))
        container.keepSpareLock()
        return removal
    }
}
