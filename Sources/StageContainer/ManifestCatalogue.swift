public import StageModel

/// The manifests of all applications of a container, and the packs that stay staged although no manifest names
/// them.
public struct ManifestCatalogue: Equatable, Sendable {
    /// The manifests; one in a format of the application's own has no packs.
    public var manifests: [Manifest]
    /// The packs of ``ContainerReader/keptPacks(ignoring:)``.
    public var keptPacks: Set<PackID>

    /// Creates the value from its parts.
    public init(manifests: [Manifest], keptPacks: Set<PackID> = []) {
        self.manifests = manifests
        self.keptPacks = keptPacks
    }
}

extension ContainerReader {
    /// Returns the manifests that were accepted last for the container's applications.
    ///
    /// Reads all stored manifests.
    ///
    /// - Parameter offered: A manifest that replaces the stored one of its application.
    /// - Returns: The manifests, or `nil` if one of them cannot be read, so that the offered packs are
    ///   unknown.
    /// - Throws: ``ContainerError/file(_:)`` if the container cannot be read.
    public func manifestCatalogue(
        replacing offered: Manifest? = nil
    ) throws(ContainerError) -> ManifestCatalogue? {
        var manifests = offered.map { [$0] } ?? []
        for application in try applications() where application != offered?.application {
            guard let record = try storedManifest(for: application),
                // The run that fetches this manifest reports the error.
                let manifest = try? record.manifest(of: application)
            else { return nil }
            manifests.append(manifest)
        }
        return ManifestCatalogue(manifests: manifests, keptPacks: try keptPacks())
    }

    /// Returns the staged packs to keep until they, or their application, are removed by name.
    ///
    /// They were staged for an application whose manifest is now in a format of its own, so StagePack does not
    /// know whether the application still needs them. A pack with a damaged record counts as one of them, and so does one that a
    /// copy of the container has without its link.
    /// Reads a record for each staged pack if an application has a manifest in its own format.
    ///
    /// - Parameter ignored: Applications whose packs need not be kept.
    /// - Returns: The packs.
    /// - Throws: ``ContainerError/file(_:)`` if the container cannot be read.
    public func keptPacks(
        ignoring ignored: Set<ApplicationID> = []
    ) throws(ContainerError) -> Set<PackID> {
        var applications: Set<ApplicationID> = []
        for application in try self.applications() where !ignored.contains(application) {
            guard try storedManifest(for: application)?.customFormatApplication == application
            else { continue }
            applications.insert(application)
        }
        guard !applications.isEmpty else { return [] }
        let kept = try stagedPacks { $0.map { applications.contains($0.application) } ?? true }
        // Without the link of a copied pack, the record of its staged version is unknown.
        return kept.union(try copiedPacks())
    }

    /// Returns the packs that were staged for an application, according to their records.
    public func stagedPacks(
        of application: ApplicationID
    ) throws(ContainerError) -> Set<PackID> {
        try stagedPacks { $0?.application == application }
    }

    /// Returns the staged packs whose record `isIncluded` accepts; the argument is `nil` for a damaged record.
    private func stagedPacks(
        where isIncluded: (StagedPack?) -> Bool
    ) throws(ContainerError) -> Set<PackID> {
        var packs: Set<PackID> = []
        for id in try stagedPacks() {
            guard let generation = try currentGeneration(of: id) else { continue }
            if isIncluded(try intactRecord(of: generation, id)) { packs.insert(id) }
        }
        return packs
    }
}

/// Digests of the content that manifests offer, in hexadecimal.
public struct OfferedContent: Equatable, Sendable {
    /// The digests of `Pack.downloads` of all packs.
    public var all: Set<String> = []
    /// The digests of packs that are not staged in the offered version: their downloads can be resumed.
    public var missing: Set<String> = []

    /// Creates a value without content.
    public init() {}

    /// Adds the content of packs, some of which the container may have staged in the offered version.
    mutating func add(
        _ packs: [Pack],
        in reader: ContainerReader
    ) throws(ContainerError) {
        for pack in packs {
            let digests = pack.downloads.map(\.description)
            all.formUnion(digests)
            let generation = try reader.currentGeneration(of: pack.id)
            if generation?.holds(pack) != true { missing.formUnion(digests) }
        }
    }
}

extension ContainerReader {
    /// Returns the content that the stored manifests of all applications offer; `nil` if one of them cannot be
    /// read.
    ///
    /// - Throws: ``ContainerError/file(_:)`` if the container cannot be read.
    public func offeredContent() throws(ContainerError) -> OfferedContent? {
        guard let catalogue = try manifestCatalogue() else { return nil }
        var offered = OfferedContent()
        try offered.add(catalogue.manifests.flatMap(\.packs), in: self)
        return offered
    }
}
