import FoundationEssentials
import Glibc
package import StageContainer
package import StageEngine
public import StageModel
import StagePack
import StageSystem
public import SystemPackage

/// The source and the destination of packs: an application's registration, or a manifest and a container.
public struct StagingTarget: Sendable {
    /// The registration of the application; `nil` if the target is a manifest.
    public var registration: Registration?
    /// The file of ``registration``; `nil` if it was not read from a file.
    package private(set) var registrationPath: FilePath?
    /// The registration as the file had it; `nil` if it was not read from a file, or if it need not be in effect.
    private var registrationAsRead: Registration?
    /// The application that the manifest must be for, if no registration determines it; `nil` for any.
    public var application: ApplicationID?
    /// The URLs of a manifest and its mirrors, if the target is not an application; empty for the manifests
    /// that the container has stored.
    public var manifests: [String]
    /// The file of the root metadata that verifies the manifest, if no registration determines it; `nil`
    /// trusts the transport alone.
    public var root: FilePath?
    /// The container; `nil` for that of the application's group: the system's for root, else the user's.
    public var container: FilePath?
    /// The other containers that readers search beside ``container``, if that is set: a pack is not staged if readers
    /// would use the copy in one of them instead.
    public var otherContainers: [FilePath] = []
    /// The installed version of the application; `nil` for the registration's.
    public var applicationVersion: String?
    /// Environment variables with the locations of the user's files and daemon; a privileged process keeps
    /// only trusted ones.
    public let environment: [String: String]

    /// Creates the target of a manifest and its mirrors, or of the manifests that the container has stored.
    ///
    /// - Parameters:
    ///   - manifests: The URLs of the manifest, the preferred one first; empty for the stored manifests.
    ///   - environment: Environment variables with the locations of the user's files; `nil` for those of this
    ///     process.
    public init(manifests: [String] = [], environment: [String: String]? = nil) {
        self.manifests = manifests
        self.environment =
            environment.map { variables in
                ProcessEnvironment.trusted(
                    variables,
                    isPrivileged: ProcessEnvironment.isPrivileged
                )
            } ?? ProcessEnvironment.current
    }

    /// Creates the target of an application that is registered on this machine.
    ///
    /// - Parameters:
    ///   - application: The application.
    ///   - environment: Environment variables with the locations of the user's files; `nil` for those of this
    ///     process.
    /// - Throws: ``StagingFailure`` if the application is not registered, or its registration cannot be read.
    public init(
        registered application: ApplicationID,
        environment: [String: String]? = nil
    ) throws(StagingFailure) {
        self.init(environment: environment)
        let folders = RegistrationFolders(environment: self.environment)
        use(try folders.registration(of: application))
    }

    /// Makes a registration the target's.
    ///
    /// Pass `false` for `isInEffect` for a file outside of the folders of registrations: the target is never obsolete
    /// then.
    package mutating func use(_ found: RegistrationFolders.Found, isInEffect: Bool = true) {
        registration = found.value
        registrationAsRead = isInEffect ? found.value : nil
        registrationPath = found.path.absolute
    }

    /// `true` if the registration that was in effect has been changed or removed since it was read.
    ///
    /// Reads the registration that is in effect now.
    package var isObsolete: Bool {
        guard let registrationAsRead else { return false }
        let folders = RegistrationFolders(environment: environment)
        // Counts as changed if it cannot be read any more: the next run reports the error.
        let now = try? folders.registration(of: registrationAsRead.application).value
        return now != registrationAsRead
    }

    /// The target with the registration that is in effect now, for processes that keep a target longer than a run.
    ///
    /// Without a registration now, keeps the one that was read, and no longer compares it.
    package var renewed: StagingTarget {
        guard let registrationAsRead, registration == registrationAsRead else { return self }
        var target = self
        let folders = RegistrationFolders(environment: environment)
        if let found = try? folders.registration(of: registrationAsRead.application) {
            target.use(found)
        } else {
            target.registrationAsRead = nil
        }
        return target
    }
}

extension StagingTarget {
    /// The installed version of the application; `nil` if it is not known.
    package var installedVersion: String? { applicationVersion ?? registration?.version }

    /// The container, if it is known without a manifest.
    package var knownContainer: FilePath? {
        container ?? registration.map { container(of: $0.group) }
    }

    /// The containers in which readers search the target's packs: the named one, or the user's and the
    /// system's of the group; empty if no group is known.
    package var containersForReading: [FilePath] {
        if let container { return [container] }
        return registration.map { containersForReading(of: $0.group) } ?? []
    }

    private func containersForReading(of group: ApplicationGroupID) -> [FilePath] {
        // Root reads the system's container only, regardless of the environment.
        geteuid() == 0
            ? [ContainerLocations.system(group)]
            : ContainerLocations.forReading(group, environment: environment)
    }

    /// Returns the copies of a manifest's packs in the other containers that readers search.
    func copiesElsewhere(
        of manifest: Manifest,
        than path: FilePath
    ) throws(ContainerError) -> [PackID: Planner.CopyElsewhere] {
        var paths = container == nil ? containersForReading : otherContainers
        if container == nil, registration == nil {
            // Without a registration, the group has the application's name, as in ``container(for:)``.
            let group = try? ApplicationGroupID(manifest.application.text)
            paths = group.map { containersForReading(of: $0) } ?? []
        }
        let view = try ContainerView(opening: paths.filter { $0 != path })
        guard !view.isEmpty else { return [:] }
        var copies: [PackID: Planner.CopyElsewhere] = [:]
        for pack in manifest.packs {
            guard let copy = try view.copiesWithPins(of: pack.id).first,
                let content = copy.generation.content
            else { continue }
            copies[pack.id] = Planner.CopyElsewhere(
                staged: Planner.StagedVersion(
                    version: content.version,
                    contentDigest: content.contentDigest
                ),
                pin: copy.pin.map(Planner.PinnedVersion.init)
            )
        }
        return copies
    }

    /// Returns the container of a group: the system's for root, else the user's.
    func container(of group: ApplicationGroupID) -> FilePath {
        let user = ContainerLocations.user(group, environment: environment)
        return geteuid() == 0
            ? ContainerLocations.system(group) : user ?? ContainerLocations.system(group)
    }

    /// Returns the container for the packs of a manifest.
    func container(for manifest: Manifest) throws(StagingFailure) -> FilePath {
        if let knownContainer { return knownContainer }
        do throws(ValueError) {
            return container(of: try ApplicationGroupID(manifest.application.text))
        } catch {
            throw .invalidRequest("no container is named: \(error)")
        }
    }

    /// Returns the manifests to download: those of the target, or those that the container has stored.
    func sources(_ reader: ContainerReader?) throws(StagingFailure) -> [ManifestSource] {
        if let registration {
            var source = ManifestSource(
                urls: registration.manifestURLs,
                application: registration.application,
                applicationVersion: installedVersion,
                trust: try registration.ledger(reader, file: registrationPath)
            )
            source.customFormatApplication = registration.customFormatApplication
            return [source]
        }
        if !manifests.isEmpty {
            return [
                ManifestSource(
                    urls: manifests,
                    application: application,
                    applicationVersion: applicationVersion,
                    trust: try ledger(reader)
                )
            ]
        }
        guard let reader else { throw .noManifest }
        return try stored(reader).map { record throws(StagingFailure) in
            try source(of: record, reader)
        }
    }

    /// Returns the manifests that the container has stored, only those of the target's application if it has
    /// one; without those that are stored under the name of another application.
    package func stored(_ reader: ContainerReader) throws(StagingFailure) -> [StoredManifest] {
        do throws(ContainerError) {
            var records: [ApplicationID: StoredManifest] = [:]
            if let wanted = registration?.application ?? application {
                records[wanted] = try reader.storedManifest(for: wanted)
            } else {
                records = try reader.storedManifests()
            }
            var misplaced = MisplacedRecords()
            return records.sorted { $0.key < $1.key }
                .filter { id, record in
                    let isWanted =
                        manifests.isEmpty || registration != nil || manifests.contains(record.url)
                    return isWanted && !misplaced.contains(record, under: id)
                }
                .map(\.value)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Opens the container for reading; returns `nil` if it is not known or does not exist.
    func reader() throws(StagingFailure) -> ContainerReader? {
        guard let path = knownContainer else { return nil }
        do throws(ContainerError) {
            return try ContainerReader.open(path)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Returns the quota of the container, the smallest of the applications of its group; `nil` if none has
    /// one.
    package func quota(of container: FilePath) -> ByteCount? {
        let folders = RegistrationFolders(environment: environment)
        // Errors of other applications' registrations are reported when those are used.
        let all = ((try? folders.applications()) ?? []).compactMap { id in
            try? folders.registration(of: id).value
        }
        let quotas = all.filter { self.container(of: $0.group) == container }.map(\.quota)
        return (quotas + [registration?.quota]).compactMap(\.self).min()
    }
}

extension StagingFailure {
    /// Creates the failure for an error of the container.
    package init(_ error: ContainerError) { self = .engine(.container(error), about: nil) }

    /// Creates the failure for an error of the engine.
    package init(_ error: StageError) { self = .engine(error, about: nil) }
}
