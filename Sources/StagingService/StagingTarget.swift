import FoundationEssentials
import Glibc
package import StageContainer
package import StageEngine
public import StageModel
import StagePack
import StageSystem
public import SystemPackage

/// The place that packs come from and the one that they go to: an application's registration, or a manifest
/// and a container.
public struct StagingTarget: Sendable {
    /// The registration of the application, where one is meant.
    public var registration: Registration?
    /// The application that the manifest has to be for, where no registration says so; `nil` for any.
    public var application: ApplicationID?
    /// The URLs of a manifest and its mirrors, where no application is meant; without them the manifests that
    /// the container has stored are meant.
    public var manifests: [String]
    /// The file of the root metadata that the manifest is verified with, where no registration says so; `nil`
    /// believes it for its transport.
    public var root: FilePath?
    /// The container; without one that of the application's group is meant, for root the system's, else the
    /// user's.
    public var container: FilePath?
    /// The installed version of the application; without it the registration's.
    public var applicationVersion: String?
    /// The variables that say where the user's files and daemon are; in a privileged process only those that it
    /// believes.
    public let environment: [String: String]

    /// Creates the target of a manifest and its mirrors; without any, that of the manifests that the container
    /// has stored.
    ///
    /// - Parameters:
    ///   - manifests: The URLs of the manifest, the preferred one first.
    ///   - environment: The variables that say where the user's files are; `nil` for this process's.
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
    ///   - environment: The variables that say where the user's files are; `nil` for this process's.
    /// - Throws: ``StagingFailure`` if it is not registered, or its registration cannot be read.
    public init(
        registered application: ApplicationID,
        environment: [String: String]? = nil
    ) throws(StagingFailure) {
        self.init(environment: environment)
        let folders = RegistrationFolders(environment: self.environment)
        registration = try folders.registration(of: application).value
    }
}

extension StagingTarget {
    /// The version of the application that is installed; `nil` where nothing tells it.
    package var installedVersion: String? { applicationVersion ?? registration?.version }

    /// The container, as far as it is known without a manifest.
    package var knownContainer: FilePath? {
        container ?? registration.map { container(of: $0.group) }
    }

    /// The containers that a reader of the target's packs looks in: the one that is named, or the user's and the
    /// system's of the group; none if no group is known.
    package var containersForReading: [FilePath] {
        if let container { return [container] }
        return registration.map { containersForReading(of: $0.group) } ?? []
    }

    private func containersForReading(of group: ApplicationGroupID) -> [FilePath] {
        // Root's own is the system's, whatever its environment says.
        geteuid() == 0
            ? [ContainerLocations.system(group)]
            : ContainerLocations.forReading(group, environment: environment)
    }

    /// The copies of a manifest's packs in the containers that readers look in beside the one that packs are staged in.
    func copiesElsewhere(
        of manifest: Manifest,
        than path: FilePath
    ) throws(ContainerError) -> [PackID: Planner.CopyElsewhere] {
        guard container == nil else { return [:] }
        var paths = containersForReading
        if registration == nil {
            // Without a registration the group has the application's name, as in ``container(for:)``.
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

    /// The container of a group: the system's for root, else the user's.
    func container(of group: ApplicationGroupID) -> FilePath {
        let user = ContainerLocations.user(group, environment: environment)
        return geteuid() == 0
            ? ContainerLocations.system(group) : user ?? ContainerLocations.system(group)
    }

    /// The container of the packs of a manifest.
    func container(for manifest: Manifest) throws(StagingFailure) -> FilePath {
        if let knownContainer { return knownContainer }
        do throws(ValueError) {
            return container(of: try ApplicationGroupID(manifest.application.text))
        } catch {
            throw .invalidRequest("no container is named: \(error)")
        }
    }

    /// The manifests to ask for: that of the target, or those that the container knows.
    func sources(_ reader: ContainerReader?) throws(StagingFailure) -> [ManifestSource] {
        if let registration {
            var source = ManifestSource(
                urls: registration.manifestURLs,
                application: registration.application,
                applicationVersion: installedVersion,
                trust: try registration.ledger(reader)
            )
            source.ownFormatOf = registration.ownFormatOf
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

    /// The manifests that the container has stored, those of other applications left out where the
    /// target names one.
    package func stored(_ reader: ContainerReader) throws(StagingFailure) -> [StoredManifest] {
        do throws(ContainerError) {
            var records: [StoredManifest] = []
            for id in try reader.applications() {
                if let wanted = registration?.application ?? application, wanted != id { continue }
                if let record = try reader.storedManifest(for: id) { records.append(record) }
            }
            return manifests.isEmpty || registration != nil
                ? records : records.filter { manifests.contains($0.url) }
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Opens the container for reading, or returns `nil` if it is not known yet or not there.
    func reader() throws(StagingFailure) -> ContainerReader? {
        guard let path = knownContainer else { return nil }
        do throws(ContainerError) {
            return try ContainerReader.open(path)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// The quota of the container: the smallest of the applications of its group, or `nil` where none has
    /// one.
    package func quota(of container: FilePath) -> ByteCount? {
        let folders = RegistrationFolders(environment: environment)
        // One that cannot be read is told of where it is asked for.
        let all = ((try? folders.applications()) ?? []).compactMap { id in
            try? folders.registration(of: id).value
        }
        let quotas = all.filter { self.container(of: $0.group) == container }.map(\.quota)
        return (quotas + [registration?.quota]).compactMap(\.self).min()
    }
}

extension StagingFailure {
    /// Creates the failure that an error of the container is.
    package init(_ error: ContainerError) { self = .engine(.container(error), about: nil) }

    /// Creates the failure that an error of the engine is.
    package init(_ error: StageError) { self = .engine(error, about: nil) }
}
