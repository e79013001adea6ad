import FoundationEssentials
import StageContainer
import StageModel
import StagePack
import StagingService
import SystemPackage

/// Output of `status`.
struct StatusReport: Encodable {
    /// One part for each group of containers.
    var parts: [Part] = []

    private enum CodingKeys: String, CodingKey {
        case containers, manifests, packs, trust
    }

    func encode(to encoder: any Encoder) throws {
        var members = encoder.container(keyedBy: CodingKeys.self)
        try members.encode(parts.flatMap(\.containers), forKey: .containers)
        try members.encode(parts.flatMap(\.manifests), forKey: .manifests)
        try members.encode(parts.flatMap(\.packs), forKey: .packs)
        let trust = parts.flatMap(\.trust)
        if !trust.isEmpty { try members.encode(trust, forKey: .trust) }
    }

    /// The content of the containers of one group.
    struct Part {
        /// The containers that readers search.
        var containers: [ContainerStatus] = []
        /// The accepted manifests.
        var manifests: [ManifestStatus] = []
        /// The applications without an accepted manifest, for people.
        var awaited: [AwaitedManifest] = []
        /// The packs that are staged or that a manifest names.
        var packs: [PackStatus] = []
        /// The signed metadata of applications that are registered with a root.
        var trust: [TrustSummary] = []
        /// The conflicts between these manifests and others of the group, for people.
        var conflicts: [OfferConflict] = []
    }

    struct ContainerStatus: Encodable {
        var path: String
        /// The owner of the container, user or system; `nil` for a container at another path.
        var location: ContainerLocation?
        /// Set if the container exists.
        var isPresent: Bool
    }

    struct ManifestStatus: Encodable {
        var application: ApplicationID
        /// The revision; `nil` for a manifest in a format of the application's own.
        var revision: Int?
        var url: String
        var receivedAt: Date
    }

    /// A copy of a pack in one container.
    struct CopyStatus: Encodable {
        var container: String
        var location: ContainerLocation?
        var version: Int?
    }

    struct PackStatus: Encodable {
        /// State of the pack, compared with the last accepted manifest.
        enum State: String, Codable {
            case staged
            case outdated
            case missing
            /// No manifest names the pack any more.
            case obsolete
            /// The pack was staged for an application whose manifest is now in a format of its own, and stays
            /// until it is removed by name.
            case kept
        }

        var id: PackID
        /// The application whose manifest offers the pack, or offered it when it was staged.
        var application: ApplicationID
        var state: State
        /// The container with the copy that readers use; `nil` if the pack is not staged.
        var container: String?
        /// The owner of that container, user or system; `nil` for a container at another path.
        var location: ContainerLocation?
        var version: Int?
        var offeredVersion: Int?
        var policy: String?
        var installedSize: ByteCount?
        var downloaded: ByteCount?
        var downloadSize: ByteCount?
        var stagedAt: Date?
        var source: String?
        /// The pin of the pack.
        var pin: PinStatus?
        /// The version that 'rollback' would restore.
        var previousVersion: Int?
        /// Set if the container keeps the offered version beside the staged one, so that staging it transfers nothing.
        var isOfferedVersionKept: Bool?
        /// Copies in other containers, which no reader uses; `nil` if there are none.
        var unusedCopies: [CopyStatus]?
    }
}

extension StatusReport.Part {
    /// True if none of the containers exists.
    var isEmpty: Bool { !containers.contains(where: \.isPresent) }

    /// Reads the containers of a scope.
    init(_ scope: ContainerScope, in view: ContainerView) throws(CommandFailure) {
        containers = zip(view.containers, view.readers).map { path, reader in
            StatusReport.ContainerStatus(
                path: path.string,
                location: scope.location(of: path),
                isPresent: reader != nil
            )
        }
        guard !view.isEmpty else { return }
        let stored = try scope.storedManifests(view)
        let manifests = scope.selected(stored)
        trust = try scope.trust(in: view, for: manifests)
        conflicts = scope.conflicts(among: stored)
        do throws(ContainerError) {
            awaited = try scope.awaitedManifests(besides: manifests, in: view)
            try add(manifests, of: stored, from: view, in: scope)
        } catch {
            throw CommandFailure(error)
        }
    }

    private mutating func add(
        _ records: [AcceptedRecord],
        of stored: [AcceptedRecord],
        from view: ContainerView,
        in scope: ContainerScope
    ) throws(ContainerError) {
        let downloaded = try scope.downloadedSizes()
        var others = try view.stagedPacks()
        for record in records {
            // 'doctor' reports a manifest that cannot be read.
            guard let manifest = try? record.manifest.get() else { continue }
            manifests.append(
                StatusReport.ManifestStatus(
                    application: manifest.application,
                    revision: record.record.customFormatApplication == nil
                        ? manifest.revision : nil,
                    url: record.record.url,
                    receivedAt: Date(timeIntervalSince1970: Double(record.record.receivedAt))
                )
            )
            var offers: GroupOffers?
            for pack in manifest.packs {
                let copies = try view.copiesWithPins(of: pack.id)
                let present = try copies.first.flatMap { copy throws(ContainerError) in
                    try view.readers[copy.container]?.record(of: pack.id)
                }
                var status = StatusReport.PackStatus(
                    pack,
                    of: manifest.application,
                    staged: present,
                    downloaded: pack.downloads.lazy.compactMap { downloaded[$0] }.first
                )
                try status.add(copies, from: view, in: scope)
                if status.state == .outdated, let present {
                    let group = offers ?? scope.offers(besides: manifest.application, of: stored)
                    offers = group
                    if group.keeps(present, insteadOf: pack) { status.state = .staged }
                }
                if status.state == .outdated {
                    let reader = copies.first.flatMap { view.readers[$0.container] }
                    let kept = try reader?.keptGenerations(holding: pack) ?? []
                    if !kept.isEmpty { status.isOfferedVersionKept = true }
                }
                packs.append(status)
                others.remove(pack.id)
            }
        }
        guard !others.isEmpty else { return }
        var applications: Set<ApplicationID> = []
        for record in stored {
            // A manifest that cannot be read names no packs.
            guard let manifest = try? record.manifest.get() else { continue }
            others.subtract(manifest.packs.map(\.id))
            applications.insert(manifest.application)
        }
        try add(packs: others, notOfferedBy: applications, from: view, in: scope)
    }

    /// Adds staged packs that no manifest names; `applications` are those with a manifest.
    private mutating func add(
        packs others: Set<PackID>,
        notOfferedBy applications: Set<ApplicationID>,
        from view: ContainerView,
        in scope: ContainerScope
    ) throws(ContainerError) {
        var kept: Set<PackID> = []
        for case let reader? in view.readers { kept.formUnion(try reader.keptPacks()) }
        for id in others.sorted() {
            let copies = try view.copiesWithPins(of: id)
            guard let copy = copies.first,
                let record = try view.readers[copy.container]?.record(of: id)
            else { continue }
            // Without a manifest it is not known whether the pack is still offered.
            let state: StatusReport.PackStatus.State =
                applications.contains(record.application) ? .obsolete : .staged
            var status = StatusReport.PackStatus(record, state: kept.contains(id) ? .kept : state)
            try status.add(copies, from: view, in: scope)
            packs.append(status)
        }
    }
}

extension ContainerScope {
    /// Returns the signed metadata of the applications that are registered with a root, from the container
    /// with the manifest in effect.
    func trust(
        in view: ContainerView,
        for manifests: [AcceptedRecord]
    ) throws(CommandFailure) -> [TrustSummary] {
        let holders = Dictionary(
            manifests.map { ($0.application, $0.container) },
            uniquingKeysWith: { first, _ in first }
        )
        var found: [TrustSummary] = []
        for position in view.positions {
            guard let reader = view.readers[position] else { continue }
            for summary in try session.trustSummaries(reader) {
                let id = summary.application
                // Without a manifest, takes the metadata of the first container.
                let isKnown = found.contains { $0.application == id }
                if holders[id] == position || holders[id] == nil && !isKnown {
                    found.append(summary)
                }
            }
        }
        return found
    }

    /// Returns the sizes of partial downloads in the container in which this user's packs are staged.
    fileprivate func downloadedSizes() throws(ContainerError) -> [Digest: ByteCount] {
        guard let own, let container = try ContainerReader.open(own) else { return [:] }
        return try container.downloadedSizes()
    }
}

extension StatusReport.PackStatus {
    init(
        _ pack: Pack,
        of application: ApplicationID,
        staged present: StagedPack?,
        downloaded: ByteCount?
    ) {
        id = pack.id
        self.application = application
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
    init(_ record: StagedPack, state: State) {
        id = record.id
        application = record.application
        self.state = state
        version = record.version
        installedSize = record.installedSize
        stagedAt = Date(timeIntervalSince1970: Double(record.stagedAt))
        source = record.source
    }

    /// Adds the container of the pack, its pin, its previous version, and its unused copies.
    fileprivate mutating func add(
        _ copies: [ContainerView.Copy],
        from view: ContainerView,
        in scope: ContainerScope
    ) throws(ContainerError) {
        guard state != .missing, let copy = copies.first, let reader = view.readers[copy.container]
        else { return }
        let path = view.containers[copy.container]
        container = path.string
        location = scope.location(of: path)
        pin = copy.pin.map { PinStatus(of: id, pin: $0) }
        previousVersion = try reader.previousGeneration(of: id)?.content?.version
        guard copies.count > 1 else { return }
        unusedCopies = copies.dropFirst().map { copy in
            let path = view.containers[copy.container]
            return StatusReport.CopyStatus(
                container: path.string,
                location: scope.location(of: path),
                version: copy.version
            )
        }
    }

    /// The state for people, with the pin.
    var text: String {
        let pin = pin.map { ", \($0.text)" } ?? ""
        let unused = (unusedCopies ?? []).map { copy in
            "; the \(copy.location?.rawValue ?? "other") copy, version \(copy.version ?? 0), is not used"
        }
        return stateText + pin + keptText + unused.joined()
    }

    /// The other versions that the container keeps, in parentheses.
    private var keptText: String {
        let offered = isOfferedVersionKept == true ? offeredVersion : nil
        let versions = Set([previousVersion, offered].compactMap(\.self)).sorted()
        guard let last = versions.last else { return "" }
        return versions.count == 1
            ? " (version \(last) is kept)" : " (versions \(versions[0]) and \(last) are kept)"
    }

    private var stateText: String {
        switch state {
        case .staged: "staged"
        case .outdated: "outdated, version \(offeredVersion ?? 0) is offered"
        case .obsolete: "staged, no longer offered"
        case .kept: "staged, kept until it is removed"
        case .missing:
            downloaded.map { "\($0) of \(downloadSize ?? .zero) downloaded" } ?? "not staged"
        }
    }
}

extension StatusReport: CustomStringConvertible {
    /// A table of the packs of each group, below its containers and manifests.
    var description: String { parts.map(\.description).joined(separator: "\n\n") }
}

extension StatusReport.Part: CustomStringConvertible {
    var description: String {
        guard !isEmpty else {
            return containers.prefix(1).map {
                "container \($0.path.escapedForDisplay): nothing is staged yet"
            }
            .joined()
        }
        let paths = containers.filter(\.isPresent).map { container in
            "container \(container.path.escapedForDisplay)"
                + (container.location.map { " (\($0.rawValue))" } ?? "")
        }
        let heads = manifests.map { manifest in
            "\(manifest.application), \(manifest.revision.asManifestText), "
                + "from \(manifest.url.escapedForDisplay)"
        }
        let rest = packs.isEmpty && !awaited.isEmpty ? [] : [table.description]
        return (paths + heads + awaited.map(\.description) + trust.map(\.description) + rest)
            .joined(separator: "\n")
    }

    /// The table of packs; omits the column of applications if all packs are of one, and the column of locations
    /// if an option names the container.
    private var table: Table {
        let hasApplications = Set(packs.map(\.application)).count > 1
        let hasLocations = containers.contains { $0.location != nil }
        let rows = packs.map { pack in
            [pack.id.text] + (hasApplications ? [pack.application.text] : [])
                + [pack.version.map(String.init) ?? "-"]
                + (hasLocations ? [pack.location?.rawValue ?? "-"] : [])
                + [pack.policy ?? "-", "\(pack.installedSize ?? .zero)", pack.text]
        }
        let location = hasLocations ? ["where"] : []
        return Table(
            head: ["pack"] + (hasApplications ? ["application"] : []) + ["version"] + location + [
                "policy", "size", "state",
            ],
            rows: rows
        )
    }
}
