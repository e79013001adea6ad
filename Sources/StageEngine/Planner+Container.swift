public import StageContainer
public import StageModel
import StageSystem
public import SystemPackage

extension Planner {
    /// Creates a planner for a manifest and what a container holds at this moment.
    ///
    /// What is staged is read from the links of the packs alone: one readlink(2) for each.
    public init(manifest: Manifest, container: Container) throws(StageError) {
        try self.init(manifest: manifest, reader: container.reader)
        downloaded = try StageError.wrapping { () throws(ContainerError) in
            try container.downloadedSizes()
        }
    }

    /// Creates a planner for a manifest and what can be seen of a container without writing to it.
    ///
    /// Without a container nothing is staged, and how much space there is is not known.
    public init(manifest: Manifest, containerAt path: FilePath) throws(StageError) {
        let reader = try StageError.wrapping { () throws(ContainerError) in
            try ContainerReader.open(path)
        }
        try self.init(manifest: manifest, reader: reader)
        // Who may not look plans for the whole archives.
        downloaded = (try? reader?.downloadedSizes()) ?? [:]
    }

    /// Returns a planner with the same settings for what the container holds now.
    package func refreshed(from container: Container) throws(StageError) -> Planner {
        var planner = try Planner(manifest: manifest, container: container)
        planner.elsewhere = elsewhere
        planner.quota = quota
        planner.applicationVersion = applicationVersion
        planner.budget = budget
        planner.pending = pending
        planner.choices = choices
        planner.spared = spared
        return planner
    }

    private init(manifest: Manifest, reader: ContainerReader?) throws(StageError) {
        self.init(manifest: manifest)
        guard let reader else { return }
        try StageError.wrapping { () throws(ContainerError) in
            for pack in manifest.packs {
                guard let content = try reader.stagedContent(of: pack.id) else {
                    continue
                }
                staged[pack.id] = StagedVersion(
                    version: content.version,
                    contentDigest: content.contentDigest
                )
            }
        }
        for (id, pin) in try StageError.wrapping({ () throws(ContainerError) in try reader.pins() })
        {
            pinned[id] = PinnedVersion(pin)
        }
        do throws(FileError) {
            freeSpace = ByteCount(try reader.root.freeSpace().bytes)
        } catch {
            throw .container(.file(error))
        }
    }
}

extension Planner {
    /// Decides what is done with each pack, and what goes from the container where there is no room for
    /// them.
    ///
    /// What there is in the container is looked at only where that matters: where there is a quota, or
    /// something does not fit.
    public mutating func plan(
        for selection: PackSelection,
        in reader: ContainerReader
    ) throws(StageError) -> Plan {
        let plan = plan(for: selection)
        guard quota != nil || plan.lacksSpace else { return plan }
        retention = try Retention(reader, offering: manifest)
        return self.plan(for: selection)
    }
}

extension Plan {
    /// Whether a pack does not fit on the file system.
    fileprivate var lacksSpace: Bool {
        entries.contains { entry in
            if case .refuse(.noSpace) = entry.decision { true } else { false }
        }
    }
}

extension Planner.PinnedVersion {
    /// The version that a pin of a container holds.
    public init(_ pin: Pin) {
        self.init(version: pin.version, rolledBackFrom: pin.replaced?.content?.version)
    }
}
