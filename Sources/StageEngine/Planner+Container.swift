public import StageContainer
public import StageModel
import StageSystem
public import SystemPackage

extension Planner {
    /// Creates a planner for a manifest and the current state of a container.
    ///
    /// Reads the state of each pack from its link: one readlink(2) and two fstatat(2) per pack. Reads the generations of
    /// packs whose staged content is not the offered one.
    public init(manifest: Manifest, container: Container) throws(StageError) {
        try self.init(manifest: manifest, reader: container.reader)
        downloaded = try StageError.wrapping { () throws(ContainerError) in
            try container.reader.downloadedSizes()
        }
        unfinished = try StageError.wrapping { () throws(ContainerError) in
            try container.reader.unfinishedContent(of: manifest)
        }
    }

    /// Creates a planner for a manifest and a container that is only read.
    ///
    /// Without a container nothing is staged, and the free space is that of the file system in which it would be
    /// created.
    public init(manifest: Manifest, containerAt path: FilePath) throws(StageError) {
        let reader = try StageError.wrapping { () throws(ContainerError) in
            try ContainerReader.open(path)
        }
        try self.init(manifest: manifest, reader: reader)
        if reader == nil { take(Self.freeSpace(forContainerAt: path)) }
        // Without permission to read the downloads, plans for complete archives and packs.
        downloaded = (try? reader?.downloadedSizes()) ?? [:]
        unfinished = (try? reader?.unfinishedContent(of: manifest)) ?? [:]
    }

    /// Returns the free space for a container that does not exist: that of its nearest existing parent; `nil` if it
    /// cannot be read.
    private static func freeSpace(forContainerAt path: FilePath) -> FreeSpace? {
        var candidate = path.absolute
        while true {
            do throws(FileError) {
                return try Directory.open(candidate).freeSpace()
            } catch {
                // The run that creates the container reports other errors.
                guard error.errno == .noSuchFileOrDirectory, candidate.removeLastComponent() else {
                    return nil
                }
            }
        }
    }

    /// Returns a planner with the same settings and the current state of the container.
    package func refreshed(from container: Container) throws(StageError) -> Planner {
        var planner = try Planner(manifest: manifest, container: container)
        planner.elsewhere = elsewhere
        planner.offeredByOthers = offeredByOthers
        planner.quota = quota
        planner.applicationVersion = applicationVersion
        planner.budget = budget
        planner.pending = pending
        planner.choices = choices
        planner.spared = spared
        // Another base has other files to share.
        planner.spaceByIndex = spaceByIndex.filter { planner.staged[$0.key] == staged[$0.key] }
        return planner
    }

    private init(manifest: Manifest, reader: ContainerReader?) throws(StageError) {
        self.init(manifest: manifest)
        guard let reader else { return }
        try StageError.wrapping { () throws(ContainerError) in
            for pack in manifest.packs {
                guard let content = try reader.stagedContent(of: pack.id) else {
                    kept[pack.id] = try reader.keptGenerations(holding: pack).first?.name
                    continue
                }
                staged[pack.id] = StagedVersion(
                    version: content.version,
                    contentDigest: content.contentDigest
                )
                if let files = try reader.stagedFiles(of: pack.id) {
                    if files.wereRead { hasReadPack = true }
                } else {
                    incomplete.insert(pack.id)
                }
                if staged[pack.id]?.holds(pack) != true || incomplete.contains(pack.id) {
                    kept[pack.id] = try reader.keptGenerations(holding: pack).first?.name
                }
            }
        }
        for (id, pin) in try StageError.wrapping({ () throws(ContainerError) in try reader.pins() })
        {
            // The same version is staged again for a pinned pack whose files are missing.
            if incomplete.contains(id), manifest[id]?.version == pin.version { continue }
            pinned[id] = PinnedVersion(pin)
        }
        do throws(FileError) {
            take(try reader.root.freeSpace())
        } catch {
            throw .container(.file(error))
        }
    }

    /// Plans with the free space of a file system; `nil` if it is unknown.
    private mutating func take(_ free: FreeSpace?) {
        freeSpace = free.map { ByteCount($0.bytes) }
        freeInodes = free?.inodes
    }
}

extension Planner {
    /// Returns whether a policy names the event or, for a periodic request, an incomplete event.
    func isNamed(_ request: ContentRequest, by events: Set<InstallationEvent>) -> Bool {
        switch request {
        case .install: events.contains(.firstInstallation)
        case .update: events.contains(.subsequentUpdate)
        case .periodic:
            pending.contains { $0 != .periodic && isNamed($0, by: events) }
        }
    }

    /// Decides about each pack, and about the generations to evict if there is not enough space.
    ///
    /// Reads the generations of the container only if there is a quota or a pack does not fit, and the status of their
    /// files only if a pack does not fit on the file system or generations are evicted: deleting files frees nothing
    /// while they have other links.
    public mutating func plan(
        for selection: PackSelection,
        in reader: ContainerReader
    ) throws(StageError) -> Plan {
        let first = plan(for: selection)
        guard quota != nil || first.lacksSpace else { return first }
        let policy = try EvictionPolicy(reader, offering: manifest)
        if !first.lacksSpace {
            evictionPolicy = policy
            let plan = plan(for: selection)
            if plan.evictions.isEmpty, !plan.lacksSpace { return plan }
        }
        var measured = policy
        try measured.measure(in: reader, sparing: packsAskedFor(selection))
        evictionPolicy = measured
        // The measurements of many files take much memory.
        defer { evictionPolicy = policy }
        return plan(for: selection)
    }
}

extension Plan {
    /// The part of the plan that needs no network.
    package var withoutTransfers: Plan { Plan(entries: entries.filter(\.isKept)) }

    /// `true` if a pack does not fit on the file system.
    var lacksSpace: Bool { entries.contains(where: \.lacksSpace) }
}

extension Plan.Entry {
    /// `true` if the pack is refused because bytes or inodes of the file system are missing.
    var lacksSpace: Bool {
        switch decision {
        case .refuse(.noSpace), .refuse(.noInodes): true
        case .stage, .skip, .refuse, .evict: false
        }
    }
}

extension Planner.PinnedVersion {
    /// Creates the value from the pin of a container.
    public init(_ pin: Pin) {
        self.init(version: pin.version, rolledBackFrom: pin.replaced?.content?.version)
    }
}
