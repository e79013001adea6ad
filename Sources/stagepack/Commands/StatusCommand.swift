import ArgumentParser
import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StagingService
import SystemPackage

struct StatusCommand: SourcedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show which packs are staged, without using the network."
    )

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source)
        let container = try session.existingContainer()
        let manifests = try session.stored(container.reader)
        let trust = try session.trustSummaries(container.reader)
        do throws(ContainerError) {
            var report = try StatusReport(container, manifests: manifests)
            if !trust.isEmpty { report.trust = trust }
            Console.print(report, asJSON: json)
            return .success
        } catch {
            throw CommandFailure(error)
        }
    }
}

/// What `status` prints.
struct StatusReport: Codable {
    /// The container.
    var container: String
    /// The manifests that were accepted.
    var manifests: [ManifestStatus] = []
    /// The packs that are staged or that a manifest names.
    var packs: [PackStatus] = []
    /// The signed metadata of applications that are registered with a root; `nil` for none.
    var trust: [TrustSummary]?

    struct ManifestStatus: Codable {
        var application: ApplicationID
        /// The revision; `nil` of a manifest in a format of the application's own.
        var revision: Int?
        var url: String
        var receivedAt: Date
    }

    struct PackStatus: Codable {
        /// Whether the pack is there, as the manifest that was accepted last has it.
        enum State: String, Codable {
            case staged
            case outdated
            case missing
            /// No manifest names it any more.
            case obsolete
            /// It was staged for an application whose manifest is now in a format of its own, and stays until it is
            /// removed by name.
            case kept
        }

        var id: PackID
        var state: State
        var version: Int?
        var offeredVersion: Int?
        var policy: String?
        var installedSize: ByteCount?
        var downloaded: ByteCount?
        var downloadSize: ByteCount?
        var stagedAt: Date?
        var source: String?
        /// What holds the pack at its version.
        var pin: PinStatus?
        /// The version that 'rollback' would bring back.
        var previousVersion: Int?
    }

    init(
        _ container: Container,
        manifests records: [StoredManifest]
    ) throws(ContainerError) {
        self.container = container.root.path.string
        let downloaded = try container.downloadedSizes()
        var staged = Set(try container.reader.stagedPacks())
        for record in records {
            // A manifest that cannot be read any more is told by 'doctor'.
            guard let manifest = try? record.manifest() else { continue }
            manifests.append(
                ManifestStatus(
                    application: manifest.application,
                    revision: record.ownFormatOf == nil ? manifest.revision : nil,
                    url: record.url,
                    receivedAt: Date(timeIntervalSince1970: Double(record.receivedAt))
                )
            )
            for pack in manifest.packs {
                let present = try container.reader.record(of: pack.id)
                var status = PackStatus(
                    pack,
                    present,
                    pack.downloads.lazy.compactMap { downloaded[$0] }.first
                )
                try status.addGenerations(container)
                packs.append(status)
                staged.remove(pack.id)
            }
        }
        let kept = try container.reader.keptPacks()
        for id in staged.sorted() {
            guard let record = try container.reader.record(of: id) else { continue }
            var status = PackStatus(record, kept.contains(id) ? .kept : .obsolete)
            try status.addGenerations(container)
            packs.append(status)
        }
    }
}

extension StatusReport.PackStatus {
    init(_ pack: Pack, _ present: StagedPack?, _ downloaded: ByteCount?) {
        id = pack.id
        offeredVersion = pack.version
        policy = pack.policy.name
        downloadSize = pack.downloadSize
        self.downloaded = downloaded
        version = present?.version
        installedSize = present?.installedSize ?? pack.installedSize
        stagedAt = present.map { Date(timeIntervalSince1970: Double($0.stagedAt)) }
        source = present?.source
        state = present.map { $0.holds(pack) ? .staged : .outdated } ?? .missing
    }

    /// Creates the status of a staged pack that no manifest names.
    init(_ record: StagedPack, _ state: State) {
        id = record.id
        self.state = state
        version = record.version
        installedSize = record.installedSize
        stagedAt = Date(timeIntervalSince1970: Double(record.stagedAt))
        source = record.source
    }

    /// Adds what else is known of the pack's generations.
    fileprivate mutating func addGenerations(_ container: Container) throws(ContainerError) {
        guard state != .missing else { return }
        pin = try container.reader.pin(of: id).map { PinStatus(id, $0) }
        previousVersion = try container.reader.previousGeneration(of: id)?.content?.version
    }

    /// The state as a person reads it, with what holds it.
    fileprivate var text: String {
        let pin = pin.map { ", \($0.text)" } ?? ""
        let previous = previousVersion.map { " (version \($0) is kept)" } ?? ""
        return stateText + pin + previous
    }

    private var stateText: String {
        switch state {
        case .staged: "staged"
        case .outdated: "outdated, version \(offeredVersion ?? 0) is offered"
        case .obsolete: "staged, offered no more"
        case .kept: "staged, kept until it is removed"
        case .missing:
            downloaded.map { "\($0) of \(downloadSize ?? .zero) downloaded" } ?? "not staged"
        }
    }
}

extension StatusReport: CustomStringConvertible {
    /// A table of the packs, under the manifests they come from.
    var description: String {
        let heads = manifests.map { manifest in
            "\(manifest.application), \(manifest.revision.asManifestText), from \(manifest.url)"
        }
        let rows = packs.map { pack in
            [
                pack.id.text, pack.version.map(String.init) ?? "-", pack.policy ?? "-",
                "\(pack.installedSize ?? .zero)", pack.text,
            ]
        }
        let table = Table(head: ["pack", "version", "policy", "size", "state"], rows: rows)
        let trust = (trust ?? []).map(\.description)
        return (["container \(container)"] + heads + trust + [table.description]).joined(
            separator: "\n"
        )
    }
}
