import ArgumentParser
import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

struct CollectGarbageCommand: SourcedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "gc",
        abstract: "Remove what is no longer needed, and keep a container within its quota.",
        discussion: """
            Removes generations that are neither current nor read, except the previous one of each \
            pack, leftovers of crashes, and downloads that no manifest names.

            Where there is a quota, removes previous generations next, then packs of the policy \
            'onDemand', then those of 'prefetch', least recently loaded packs first. Never removes \
            packs that are essential, pinned or read, nor packs that no manifest offers. Ends with \
            status 40 if the quota cannot be kept.
            """
    )

    @Flag(
        name: [.customLong("previous"), .customLong("all")],
        help: "Remove the previous generation of each pack, too."
    )
    var previous = false

    @Option(
        help: ArgumentHelp(
            "The bytes that packs may take, as 500MB, 20GB or 20GiB; without it, the smallest 'quota' of "
                + "the group's registrations.",
            valueName: "size"
        ),
        transform: ByteSize.parse
    )
    var quota: ByteCount?

    @Flag(help: "Say what would be removed, and why; downloads are not looked at.")
    var dryRun = false

    @Flag(
        help: ArgumentHelp(
            "Remove the packs of applications that were registered and are no more, in every "
                + "container of the system (as root) or of the user."
        )
    )
    var unregistered = false

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    mutating func validate() throws {
        if unregistered, source.app != nil || !source.manifest.isEmpty {
            throw ValidationError("--unregistered excludes --app and --manifest.")
        }
        if unregistered, dryRun || previous || quota != nil {
            throw ValidationError("--unregistered excludes --dry-run, --previous and --quota.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source)
        guard !unregistered else {
            Console.print(try await UnregisteredReport.make(session), asJSON: json)
            return .success
        }
        let container = try session.existingContainer(for: .makingRoom)
        let quota = quota ?? session.target.quota(of: container.root.path)
        let report = try await dryRun ? plan(container, quota) : collect(container, quota)
        Console.print(report, asJSON: json)
        guard let excess = report.excess else { return .success }
        let failure = CommandFailure(
            status: .noSpace,
            message: "the container is \(excess) over its quota: what is left is essential, pinned "
                + "or read, or no manifest offers it",
            hint: "raise the quota, or remove packs"
                + (session.hints.local("status").map { ": \($0) lists them" } ?? ""),
            retry: .later
        )
        // As JSON there is one value, which says it.
        if !json { throw failure }
        return failure.status
    }

    /// What would go.
    private func plan(
        _ container: Container,
        _ quota: ByteCount?
    ) throws(CommandFailure) -> GarbageReport {
        do throws(StageError) {
            var retention = try Retention(container.reader)
            var report = GarbageReport()
            report.isDryRun = true
            report.add(retention.collect(includingPrevious: previous))
            if let quota { report.add(retention.evict(retention.size - quota)) }
            report.generations = report.evicted?.count { $0.isGeneration } ?? 0
            report.inUse = retention.generations.count { $0.role != .current && $0.isLeased }
            report.compare(retention.size, with: quota)
            return report
        } catch {
            throw CommandFailure(error)
        }
    }

    private func collect(
        _ container: Container,
        _ quota: ByteCount?
    ) async throws(CommandFailure) -> GarbageReport {
        var report = GarbageReport()
        do throws(ContainerError) {
            // What went may have made room for the locks that the rest takes.
            var removal = Removal()
            while true {
                let (more, refusal) = try removeGarbage(container)
                removal.inUse = 0
                removal.add(more)
                guard let refusal else { break }
                guard more.hasFreed else { throw refusal }
            }
            report.add(removal)
        } catch {
            throw CommandFailure(error)
        }
        guard let quota else { return report }
        do throws(StageError) {
            var retention = try Retention(container.reader)
            let evictions = retention.evict(retention.size - quota)
            let gone = try await container.evictAndRemember(evictions, Log.logger)
            report.add(gone)
            report.generations += gone.count { !$0.isOfPack }
            report.compare(try Retention(container.reader).size, with: quota)
            return report
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Removes obsolete generations, leftovers and partial content, and returns the reason why some of it stays
    /// if the disk has no room for the lock files that its removal takes.
    private func removeGarbage(
        _ container: Container
    ) throws(ContainerError) -> (Removal, refusal: ContainerError?) {
        var removal = Removal()
        var refusal: ContainerError?
        func attempt(_ step: () throws(ContainerError) -> Removal) throws(ContainerError) {
            do throws(ContainerError) {
                removal.add(try step())
            } catch {
                guard error.isOutOfSpace else { throw error }
                refusal = refusal ?? error
            }
        }
        for id in try container.reader.packsWithGenerations() {
            try attempt { () throws(ContainerError) in
                // A pack that is being staged is left to the process that stages it.
                guard let lock = try container.attemptLock(id) else { return Removal() }
                return try container.removeObsoleteGenerations(lock, keeping: previous ? 0 : 1)
            }
        }
        let offered = try Self.offeredContent(container)
        let now = Int64(Date().timeIntervalSince1970)
        try attempt { () throws(ContainerError) in
            try container.sweep(now: now) { offered?.missing.contains(prefix(of: $0)) ?? true }
        }
        if let offered {
            try attempt { () throws(ContainerError) in
                try container.removePartialContent { offered.all.contains($0.description) }
            }
        }
        container.keepSpareLock()
        return (removal, refusal)
    }

    private func prefix(of name: FilePath.Component) -> String {
        String(name.string.prefix { $0 != "." })
    }

    /// Digests of the content that manifests offer.
    private struct OfferedContent {
        var all: Set<String> = []
        /// Those of packs that are not staged, whose downloads can be continued.
        var missing: Set<String> = []
    }

    /// The content that the manifests of all applications offer; `nil` while one cannot be read.
    private static func offeredContent(
        _ container: Container
    ) throws(ContainerError) -> OfferedContent? {
        guard let catalogue = try container.reader.manifestCatalogue() else { return nil }
        var offered = OfferedContent()
        for pack in catalogue.manifests.flatMap(\.packs) {
            let digests = pack.downloads.map(\.description)
            offered.all.formUnion(digests)
            let generation = try container.reader.currentGeneration(of: pack.id)
            if generation?.holds(pack) != true { offered.missing.formUnion(digests) }
        }
        return offered
    }
}

/// What `gc` prints.
struct GarbageReport: Codable, CustomStringConvertible {
    var generations = 0
    var inUse = 0
    var leftovers = 0
    var downloads = 0
    /// What went to keep the quota; of a dry run everything that would go.
    var evicted: [EvictionReport]?
    /// What the packs take, where there is a quota.
    var size: ByteCount?
    /// What they may take.
    var quota: ByteCount?
    /// Whether nothing was done.
    var isDryRun: Bool?

    mutating func add(_ removal: Removal) {
        generations += removal.generations
        inUse += removal.inUse
        leftovers += removal.leftovers
        downloads += removal.downloads
    }

    mutating func add(_ evictions: [Eviction]) {
        guard !evictions.isEmpty else { return }
        evicted = (evicted ?? []) + evictions.map(EvictionReport.init)
    }

    mutating func compare(_ size: ByteCount, with quota: ByteCount?) {
        guard let quota else { return }
        self.size = size
        self.quota = quota
    }

    /// How much more there is than there may be; `nil` for nothing.
    var excess: ByteCount? {
        guard let size, let quota, size > quota else { return nil }
        return size - quota
    }

    var description: String {
        let evicted = evicted ?? []
        let packs = evicted.count { !$0.isGeneration }
        var lines = evicted.map { "\(isDryRun == true ? "would evict" : "evicted") \($0)" }
        if isDryRun == true {
            lines.append(
                "would remove \(generations.quantity(of: "generation")), \(packs.quantity(of: "pack"))"
            )
        } else {
            let packs = packs == 0 ? "" : "\(packs.quantity(of: "pack")), "
            lines.append(
                "removed \(generations.quantity(of: "generation")), \(packs)\(downloads.quantity(of: "download")), "
                    + "\(leftovers.quantity(of: "leftover"))"
            )
        }
        if inUse > 0 {
            lines[lines.count - 1] +=
                "; \(inUse.quantity(of: "generation is", plural: "generations are")) being read"
        }
        if let size, let quota { lines.append("packs take \(size) of \(quota)") }
        return lines.joined(separator: "\n")
    }
}
