import ArgumentParser
import FoundationEssentials
import Glibc
import Logging
import StageContainer
import StageEngine
import StageModel
import StagePack
import StageSystem
import StageTransfer
import SystemPackage

/// Turns the options that commands share into what they name: a manifest's source, a container, a
/// stager.
struct Session {
    let source: SourceOptions
    let network: NetworkOptions?
    let environment: [String: String]
    let registration: Registration?

    /// Reads the registration, if the options name one.
    init(_ source: SourceOptions, _ network: NetworkOptions? = nil) throws(CommandFailure) {
        self.source = source
        self.network = network
        environment = ProcessEnvironment.current
        if let app = source.app {
            registration = try RegistrationFolders(environment: environment)
                .registration(named: app).value
        } else {
            registration = nil
        }
    }

    /// Takes a registration that was read from somewhere.
    init(_ registration: Registration, _ source: SourceOptions, _ network: NetworkOptions?) {
        self.source = source
        self.network = network
        self.registration = registration
        environment = ProcessEnvironment.current
    }

    /// Reads the registration of an application.
    init(
        _ application: ApplicationID,
        _ source: SourceOptions,
        _ network: NetworkOptions?
    ) throws(CommandFailure) {
        self.source = source
        self.network = network
        environment = ProcessEnvironment.current
        registration = try RegistrationFolders(environment: environment)
            .registration(of: application).value
    }

    /// Whether the network is not to be used.
    var isOffline: Bool {
        network?.isOffline ?? false || NetworkOptions.isOffline(environment)
    }

    /// The version of the application that is installed; `nil` where nothing tells it.
    var applicationVersion: String? { source.applicationVersion ?? registration?.version }

    /// The container, as far as it is known without a manifest.
    var knownContainer: FilePath? {
        source.container ?? registration.map { container(of: $0.group) }
    }

    /// The container of a group: the system's for root, else the user's.
    func container(of group: ApplicationGroupID) -> FilePath {
        let user = ContainerLocations.user(group, environment: environment)
        return geteuid() == 0
            ? ContainerLocations.system(group) : user ?? ContainerLocations.system(group)
    }

    /// The container of the packs of a manifest.
    func container(for manifest: Manifest) throws(CommandFailure) -> FilePath {
        if let knownContainer { return knownContainer }
        do throws(ValueError) {
            return container(of: try ApplicationGroupID(manifest.application.text))
        } catch {
            throw .usage("no container is named: \(error)")
        }
    }

    /// The sources to ask: the one that the options name, or those that the container knows.
    func sources(_ reader: ContainerReader?) throws(CommandFailure) -> [ManifestSource] {
        if let registration {
            return [
                ManifestSource(
                    urls: registration.manifestURLs,
                    application: registration.application,
                    applicationVersion: applicationVersion
                )
            ]
        }
        if !source.manifest.isEmpty {
            let version = source.applicationVersion
            return [ManifestSource(urls: try urls(), applicationVersion: version)]
        }
        guard let reader else {
            throw CommandFailure(
                status: .manifestUnavailable,
                message: "nothing says where the packs are",
                hint: "pass --manifest URL or --app ID",
                retry: .never
            )
        }
        return try stored(reader).map { record in
            ManifestSource(urls: [record.url], applicationVersion: source.applicationVersion)
        }
    }

    /// The manifests of `--manifest`; a path is taken for the file of that name.
    private func urls() throws(CommandFailure) -> [String] {
        var urls: [String] = []
        for text in source.manifest {
            if text.contains("://") {
                let shown = text.withoutUser
                guard shown == text else {
                    throw .usage(
                        "--manifest: expected a URL without a user's name and password, found "
                            + "'\(shown.forDisplay())': pass them with --netrc-file"
                    )
                }
                urls.append(text)
            } else if FileStatus.exists(FilePath(text)) {
                urls.append(URL(filePath: text).absoluteURL.absoluteString)
            } else {
                throw .usage("--manifest: expected a URL, found '\(text.forDisplay())'")
            }
        }
        return urls
    }

    /// The manifests that the container has stored, those of other applications left out where the
    /// options name one.
    func stored(_ reader: ContainerReader) throws(CommandFailure) -> [StoredManifest] {
        do throws(ContainerError) {
            var records: [StoredManifest] = []
            for id in try reader.applications() {
                if let registration, registration.application != id { continue }
                if let record = try reader.storedManifest(for: id) { records.append(record) }
            }
            if source.manifest.isEmpty { return records }
            let wanted = try? urls()
            return records.filter { wanted?.contains($0.url) ?? false }
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Opens the container for reading, or returns `nil` if it is not known yet or not there.
    func reader() throws(CommandFailure) -> ContainerReader? {
        guard let path = knownContainer else { return nil }
        do throws(ContainerError) {
            return try ContainerReader.open(path)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Opens the container for changing it; that there is none is an error.
    func existingContainer(
        for purpose: Container.Purpose = .usual
    ) throws(CommandFailure) -> Container {
        guard let path = knownContainer else {
            throw .usage("no container is named: pass --container DIR or --app ID")
        }
        do throws(ContainerError) {
            guard let container = try Container.open(path, for: purpose) else {
                throw ContainerError.missing(path)
            }
            return container
        } catch {
            throw CommandFailure(error)
        }
    }

    /// The options of a stager: archives are decoded in child processes, this program again.
    func stagerOptions() throws(CommandFailure) -> StagerOptions {
        StagerOptions(
            transfer: try network?.configuration(environment) ?? TransferConfiguration(),
            unpacking: .process(
                UnpackServiceCommand.executable,
                arguments: UnpackServiceCommand.arguments
            ),
            now: { Int64(Date().timeIntervalSince1970) }
        )
    }
}
