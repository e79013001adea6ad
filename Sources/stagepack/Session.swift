import ArgumentParser
import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTransfer
import StagingService
import SystemPackage

/// The source, the container and the network that the options of commands name.
struct Session {
    let target: StagingTarget
    let network: NetworkOptions?
    /// The fault of the manifests that the options name; thrown where they are asked for.
    private let problem: CommandFailure?

    /// Reads the registration, if the options name one.
    init(_ source: SourceOptions, _ network: NetworkOptions? = nil) throws(CommandFailure) {
        var registration: Registration?
        if let app = source.app {
            let folders = RegistrationFolders(environment: ProcessEnvironment.current)
            registration = try CommandFailure.wrapping { () throws(StagingFailure) in
                try folders.registration(named: app).value
            }
        }
        self.init(registration, source, network)
    }

    /// Takes a registration that was read from somewhere.
    init(
        _ registration: Registration?,
        _ source: SourceOptions,
        _ network: NetworkOptions?
    ) {
        var target: StagingTarget
        do throws(CommandFailure) {
            target = StagingTarget(manifests: try source.manifestURLs)
            problem = nil
        } catch {
            target = StagingTarget(manifests: source.manifest)
            problem = error
        }
        target.registration = registration
        target.container = source.container
        target.root = source.root.map { FilePath($0).absolute }
        target.applicationVersion = source.applicationVersion
        self.target = target
        self.network = network
    }

    /// Reads the registration of an application.
    init(
        _ application: ApplicationID,
        _ source: SourceOptions,
        _ network: NetworkOptions?
    ) throws(CommandFailure) {
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let registration = try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.registration(of: application).value
        }
        self.init(registration, source, network)
    }

    /// Takes a target, with the usual options of the network.
    init(_ target: StagingTarget, network: NetworkOptions) {
        self.target = target
        self.network = network
        problem = nil
    }

    /// Takes a target for a command that uses no network.
    init(_ target: StagingTarget) {
        self.target = target
        network = nil
        problem = nil
    }

    /// Whether the network is not to be used.
    var isOffline: Bool {
        network?.isOffline ?? false || NetworkOptions.isOffline(target.environment)
    }

    /// The options that hints of this session repeat.
    var hints: HintSource {
        let source = HintSource.current
        return target.registration.map { source.ofApplication($0.application) } ?? source
    }

    /// Checks the files that the options of the network name, for a command that may end without the network.
    func checkNetworkFiles() throws(CommandFailure) {
        _ = try network?.configuration(target.environment)
    }

    /// The container, as far as it is known without a manifest.
    var knownContainer: FilePath? { target.knownContainer }

    /// The manifests that the container has stored, those of other applications left out where the
    /// options name one.
    func stored(_ reader: ContainerReader) throws(CommandFailure) -> [StoredManifest] {
        try CommandFailure.wrapping { () throws(StagingFailure) in try target.stored(reader) }
    }

    /// The signed metadata of the applications of a container that are registered with a root.
    func trustSummaries(_ reader: ContainerReader) throws(CommandFailure) -> [TrustSummary] {
        try CommandFailure.wrapping { () throws(StagingFailure) in
            try target.trustSummaries(reader, now: Int64(Date().timeIntervalSince1970))
        }
    }

    /// Opens the container for changing it; that there is none is an error.
    func existingContainer(
        for purpose: Container.Purpose = .usual
    ) throws(CommandFailure) -> Container {
        guard let path = knownContainer else {
            throw .noContainer
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

    /// The request for packs: archives are decoded in child processes, this program again.
    ///
    /// - Throws: ``CommandFailure`` if the options name a manifest that is none, or credentials that cannot be read.
    func request(
        _ packs: StagingRequest.Packs
    ) throws(CommandFailure) -> StagingRequest {
        if let problem { throw problem }
        let options = StagerOptions(
            transfer: try network?.configuration(target.environment) ?? TransferConfiguration(),
            unpacking: .process(
                UnpackServiceCommand.executable,
                arguments: UnpackServiceCommand.arguments
            ),
            now: { Int64(Date().timeIntervalSince1970) }
        )
        var request = StagingRequest(packs, of: target, options: options)
        request.isOffline = isOffline
        return request
    }
}
