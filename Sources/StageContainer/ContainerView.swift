package import StageModel
import StageSystem
package import SystemPackage

/// The containers that a reader uses, combined: for each pack, the copy that comes first by
/// ``CopyPrecedence``; for each application, the manifest that was received last.
package struct ContainerView: Sendable {
    /// The directories of the containers: the user's first, then the system's.
    package let containers: [FilePath]
    /// The open containers by position; `nil` for one that does not exist.
    package let readers: [ContainerReader?]

    /// A container's copy of a pack.
    package struct Copy: Sendable {
        /// The position of the container.
        package var container: Int
        /// The current generation in that container.
        package var generation: GenerationName
        /// The pin of the pack in that container; `nil` if there is none.
        package var pin: Pin?

        /// The publisher's version; `nil` if the name of the generation does not contain it.
        package var version: Int? { generation.content?.version }

        fileprivate var precedence: CopyPrecedence {
            CopyPrecedence(container: container, version: version, isPinned: pin != nil)
        }
    }

    /// Creates a view of open containers.
    package init(containers: [FilePath], readers: [ContainerReader?]) {
        self.containers = containers
        self.readers = readers
    }

    /// Opens those of the containers that exist.
    package init(opening containers: [FilePath]) throws(ContainerError) {
        var readers: [ContainerReader?] = []
        for path in containers { readers.append(try ContainerReader.open(path)) }
        self.init(containers: containers, readers: readers)
    }

    /// `true` if none of the containers exists.
    package var isEmpty: Bool { readers.allSatisfy { $0 == nil } }

    /// The positions of the containers that exist.
    package var positions: [Int] { readers.indices.filter { readers[$0] != nil } }

    /// Returns the copies of a pack, first the one that readers use.
    ///
    /// Costs one readlink(2) and two fstatat(2) per container and, if several have the pack, reading its pin
    /// in each. Leaves out a copy whose files are missing.
    package func copies(of id: PackID) throws(ContainerError) -> [Copy] {
        var copies: [Copy] = []
        for (position, reader) in readers.enumerated() {
            guard let reader, let generation = try reader.currentGeneration(of: id),
                try reader.hasFiles(of: id)
            else { continue }
            copies.append(Copy(container: position, generation: generation))
        }
        guard copies.count > 1 else { return copies }
        for index in copies.indices {
            copies[index].pin = try readers[copies[index].container]?.pin(of: id)
        }
        return copies.sorted { $0.precedence > $1.precedence }
    }

    /// Returns the position of the first container with a link to a generation of the pack, even if its files
    /// are missing; `nil` if there is none.
    package func positionOfLink(to id: PackID) throws(ContainerError) -> Int? {
        for (position, reader) in readers.enumerated()
        where try reader?.currentGeneration(of: id) != nil {
            return position
        }
        return nil
    }

    /// Returns the copies of a pack with their pins, first the one that readers use.
    package func copiesWithPins(of id: PackID) throws(ContainerError) -> [Copy] {
        var copies = try copies(of: id)
        if copies.count == 1, let reader = readers[copies[0].container] {
            copies[0].pin = try reader.pin(of: id)
        }
        return copies
    }

    /// Returns the IDs of the packs that are staged in any of the containers.
    package func stagedPacks() throws(ContainerError) -> Set<PackID> {
        var packs: Set<PackID> = []
        for case let reader? in readers { packs.formUnion(try reader.stagedPacks()) }
        return packs
    }

    /// Returns the stored manifests by application, with the position of their container; from several
    /// containers, the manifest that was received last, and of those received in one second the highest revision.
    package func storedManifests() throws(ContainerError) -> [ApplicationID: StoredCopy] {
        var cache = ManifestCache()
        return try storedManifests(reusing: &cache, at: 0)
    }

    /// Returns the manifests of ``storedManifests()``, and reads only those whose files have changed since the last
    /// pass of the cache; `now` is the time in seconds since 1970.
    package func storedManifests(
        reusing cache: inout ManifestCache,
        at now: Int64
    ) throws(ContainerError) -> [ApplicationID: StoredCopy] {
        cache.begin(at: now)
        var found: [ApplicationID: StoredCopy] = [:]
        for (position, reader) in readers.enumerated() {
            guard let reader else { continue }
            for (application, record) in try reader.storedManifests(reusing: &cache) {
                if let other = found[application]?.record, !record.isNewer(than: other) { continue }
                found[application] = StoredCopy(container: position, record: record)
            }
        }
        return found
    }

    /// Returns the manifests of ``storedManifests()``, decoded, in the order of their applications.
    package func decodedManifests() throws(ContainerError) -> [DecodedManifest] {
        var decoded: [DecodedManifest] = []
        for (application, copy) in try storedManifests().sorted(by: { $0.key < $1.key }) {
            // Names of one file (hard links) have the same text, which is decoded once.
            let same = decoded.last { $0.copy.record == copy.record }?.anyManifest
            decoded.append(DecodedManifest(application, copy, manifest: same))
        }
        return decoded
    }

    /// A manifest that a container stores, decoded.
    package struct DecodedManifest: Sendable {
        /// The application by the name of the record.
        package let application: ApplicationID
        /// The record.
        package let copy: StoredCopy
        /// The manifest of any application; the error if it cannot be read.
        fileprivate let anyManifest: Result<Manifest, ManifestError>

        fileprivate init(
            _ application: ApplicationID,
            _ copy: StoredCopy,
            manifest: Result<Manifest, ManifestError>?
        ) {
            self.application = application
            self.copy = copy
            anyManifest =
                manifest
                ?? Result { () throws(ManifestError) in try copy.record.manifest() }
        }

        /// The manifest; the error if it cannot be read, or is that of another application.
        package var manifest: Result<Manifest, ManifestError> {
            anyManifest.flatMap { manifest in
                Result { () throws(ManifestError) in try manifest.checked(isOf: application) }
            }
        }
    }

    /// A manifest that a container stores.
    package struct StoredCopy: Sendable {
        /// The position of the container.
        package var container: Int
        /// The manifest.
        package var record: StoredManifest
    }
}

extension StoredManifest {
    /// Returns whether this manifest was received after another one, or in the same second with a higher revision.
    fileprivate func isNewer(than other: StoredManifest) -> Bool {
        guard receivedAt == other.receivedAt else { return receivedAt > other.receivedAt }
        // A manifest that cannot be read has no revision.
        let revisions = [self, other].map { (try? $0.manifest())?.revision ?? .min }
        return revisions[0] > revisions[1]
    }
}
