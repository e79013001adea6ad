import ArgumentParser
import StageContainer
import StageModel
import StagePack
import StageSystem
import SystemPackage

struct DiskUsageCommand: ScopedSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "du",
        abstract: "Show the disk space that packs take.",
        discussion: """
            A version before the current one is kept for 'rollback' and for applications that read \
            it; 'gc' removes what is superfluous. Files that versions share on disk count once, for the \
            version that applications read. \
            Single files are those that 'load --file' fetched of packs that are not staged. Unfinished \
            packs are indexed ones that a run did not complete: the next run continues them, and \
            'remove' removes them.
            """
    )

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup var scope: ScopeOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        var scopes = try ContainerScopes(source)
        var usages: [DiskUsage] = []
        for scope in scopes.scopes {
            do throws(CommandFailure) {
                usages += try DiskUsage.make(of: scope, in: scopes.view(of: scope))
            } catch {
                try scopes.record(error)
            }
        }
        let listing = Listing(elements: usages, name: "containers")
        let status = scopes.conclude(listing, asJSON: json)
        if usages.isEmpty { scopes.noteNothingStaged(asJSON: json) }
        return status
    }
}

/// Output of `du` for one container.
private struct DiskUsage: Encodable, CustomStringConvertible {
    struct PackUsage: Encodable {
        var id: PackID
        /// The bytes of the version that applications read.
        var current = ByteCount.zero
        /// The bytes of other versions, without the files that they share with it.
        var kept = ByteCount.zero

        var total: ByteCount { current + kept }
    }

    var container: String
    /// The owner of the container, user or system; `nil` for a container at another path.
    var location: ContainerLocation?
    /// The packs, largest first.
    var packs: [PackUsage]
    /// The bytes of incomplete downloads, and of complete ones that are not unpacked.
    var downloads: ByteCount
    /// The bytes of single files of packs that are not staged.
    var singleFiles: ByteCount
    /// The bytes of packs that are being staged, and of those that a run did not complete.
    var unfinishedPacks: ByteCount
    var total: ByteCount

    /// Measures the containers of a scope.
    static func make(
        of scope: ContainerScope,
        in view: ContainerView
    ) throws(CommandFailure) -> [DiskUsage] {
        var usages: [DiskUsage] = []
        do throws(ContainerError) {
            for path in view.positions.map({ view.containers[$0] }) {
                guard let container = try ContainerReader.open(path) else { continue }
                usages.append(try DiskUsage(of: container, at: scope.location(of: path)))
            }
        } catch {
            throw CommandFailure(error)
        }
        return usages
    }

    init(of container: ContainerReader, at location: ContainerLocation?) throws(ContainerError) {
        self.location = location
        self.container = container.root.path.string
        var usages: [PackID: PackUsage] = [:]
        var space = OccupiedSpace()
        func added(_ other: OccupiedSpace) -> ByteCount {
            let before = space.size
            space.add(other)
            return space.size - before
        }
        let generations = try container.inventory()
        // The current versions come first: a file that several versions share counts once.
        for generation in generations where generation.role == .current {
            let size = added(try container.occupiedSpace(of: generation))
            usages[generation.id, default: PackUsage(id: generation.id)].current += size
        }
        for generation in generations where generation.role != .current {
            let size = added(try container.occupiedSpace(of: generation))
            usages[generation.id, default: PackUsage(id: generation.id)].kept += size
        }
        packs = usages.values.sorted { ($1.total, $0.id) < ($0.total, $1.id) }
        downloads = added(try container.occupiedSpace(of: .downloads))
        singleFiles = added(try container.occupiedSpace(of: .singleFiles))
        unfinishedPacks = added(try container.occupiedSpace(of: .unfinishedPacks))
        total = packs.reduce(downloads + singleFiles + unfinishedPacks) { $0 + $1.total }
    }

    var description: String {
        var rows = packs.map { ["\($0.id)", "\($0.current)", "\($0.kept)", "\($0.total)"] }
        rows.append(["downloads", "", "", "\(downloads)"])
        if singleFiles > .zero { rows.append(["single files", "", "", "\(singleFiles)"]) }
        if unfinishedPacks > .zero {
            rows.append(["unfinished packs", "", "", "\(unfinishedPacks)"])
        }
        rows.append(["all", "", "", "\(total)"])
        let suffix = location.map { " (\($0.rawValue))" } ?? ""
        return "container \(container.forDisplay())\(suffix)\n"
            + Table(head: ["pack", "current", "kept", "total"], rows: rows).description
    }
}
