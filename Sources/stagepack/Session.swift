import ArgumentParser
import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTransfer
import StagingService
import SystemPackage

/// The source, the container and the network settings from the options of a command.
struct Session {
    let target: StagingTarget
    let network: NetworkOptions?
    /// The failure of the `--manifest` options; thrown only when a command needs the manifests.
    private let problem: CommandFailure?

    /// Creates a session from options, and reads the registration if they name one.
    init(_ source: SourceOptions, network: NetworkOptions? = nil) throws(CommandFailure) {
        var registration: RegistrationFolders.Found?
        if let app = source.app {
            let folders = RegistrationFolders(environment: ProcessEnvironment.current)
            registration = try CommandFailure.wrapping { () throws(StagingFailure) in
                try folders.registration(named: app)
            }
        }
        self.init(registration: registration, source: source, network: network)
        try checkRoot()
    }

    /// Creates a session with a registration that was read before.
    ///
    /// Pass `false` for `isInEffect` if the registration need not be installed on this machine.
    init(
        registration: RegistrationFolders.Found?,
        isInEffect: Bool = true,
        source: SourceOptions,
        network: NetworkOptions?
    ) {
        var target: StagingTarget
        do throws(CommandFailure) {
            target = StagingTarget(manifests: try source.manifestURLs)
            problem = nil
        } catch {
            target = StagingTarget(manifests: source.manifest)
            problem = error
        }
        if let registration { target.use(registration, isInEffect: isInEffect) }
        target.container = source.container
        target.root = source.root.map { FilePath($0).absolute }
        target.applicationVersion = source.applicationVersion
        self.target = target
        self.network = network
    }

    /// Creates a session for an application, and reads its registration.
    init(
        application: ApplicationID,
        source: SourceOptions,
        network: NetworkOptions?
    ) throws(CommandFailure) {
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let registration = try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.registration(of: application)
        }
        self.init(registration: registration, source: source, network: network)
    }

    /// Creates a session for a target, with network options.
    init(_ target: StagingTarget, network: NetworkOptions) {
        self.target = target
        self.network = network
        problem = nil
    }

    /// Creates a session for a target, for a command without network access.
    init(_ target: StagingTarget) {
        self.target = target
        network = nil
        problem = nil
    }

    /// True if the options or the environment disable network access.
    var isOffline: Bool {
        network?.isOffline ?? false || NetworkOptions.isOffline(target.environment)
    }

    /// The options that hints of this session repeat.
    var hints: HintSource {
        let source = HintSource.current
        return target.registration.map { source.ofApplication($0.application) } ?? source
    }

    /// Checks that the file of `--root` can be read.
    private func checkRoot() throws(CommandFailure) {
        guard let root = target.root else { return }
        do throws(FileError) {
            _ = try File.open(readingRegular: root)
        } catch {
            throw .usage("--root: \(error)")
        }
    }

    /// The container, if it is known without a manifest.
    var knownContainer: FilePath? { target.knownContainer }

    /// Returns the signed metadata of a container's applications that are registered with a root.
    func trustSummaries(_ reader: ContainerReader) throws(CommandFailure) -> [TrustSummary] {
        try CommandFailure.wrapping { () throws(StagingFailure) in
            try target.trustSummaries(reader, now: Int64(Date().timeIntervalSince1970))
        }
    }

    /// Opens the container for changes; `nil` if that of a registered application does not exist yet.
    ///
    /// - Throws: ``CommandFailure`` also if the options name a container that does not exist.
    func existingContainer(
        for purpose: Container.Purpose = .usual
    ) throws(CommandFailure) -> Container? {
        guard let path = knownContainer else {
            throw .noContainer
        }
        do throws(ContainerError) {
            if let container = try Container.open(path, for: purpose) { return container }
            guard target.container == nil else { throw .absence(at: path) }
            return nil
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Creates the request for packs; child processes of this program decode the archives.
    ///
    /// - Throws: ``CommandFailure`` if a manifest in the options is neither a URL nor a file, or if
    ///   credentials cannot be read.
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
        if network != nil { request.settings = try SettingsFile.settings() }
        return request
    }
}
