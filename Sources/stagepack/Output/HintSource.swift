import StageModel
import StagingService
import SystemPackage

/// The options that name the packs and the container of a run, which the commands of its hints repeat.
struct HintSource: Sendable {
    /// The source of the run that creates reports and failures now.
    @TaskLocal static var current = HintSource()

    /// The URLs of the manifest, preferred one first.
    private var manifests: [String] = []
    private var root: String?
    private var application: String?
    private var container: String?
    private var applicationVersion: String?
    /// The options for access to the servers.
    private var access: [String] = []
    /// The content of the container that hints to free space name; `nil` if there is none, or it is not known.
    var removable: RemovableContent?

    /// Creates the source of a run that names neither packs nor a container.
    init() {}

    /// Creates the source of a run with these options.
    init(_ options: SourceOptions, network: NetworkOptions? = nil) {
        manifests = options.manifest
        root = options.root
        application = options.app
        container = options.container?.string
        applicationVersion = options.applicationVersion
        access = network?.accessWords ?? []
    }

    /// Creates the source of an application, or of the manifests that a container has stored.
    init(application: ApplicationID?, container: FilePath?) {
        self.application = application?.text
        self.container = container?.string
    }

    /// Returns the source with a container, unless its options name one or an application.
    func inContainer(_ path: FilePath) -> HintSource {
        var source = self
        if application == nil, container == nil { source.container = path.string }
        return source
    }

    /// Returns the source with an application in place of manifests.
    func ofApplication(_ id: ApplicationID) -> HintSource {
        var source = HintSource(application: id, container: nil)
        source.container = container
        source.applicationVersion = applicationVersion
        source.access = access
        return source
    }

    /// True if an option names the application.
    var namesApplication: Bool { application != nil }

    /// The manifest's path, if the options name a single manifest that is a local file.
    var manifestFile: String? {
        guard application == nil, manifests.count == 1, let manifest = manifests.first else {
            return nil
        }
        return manifest.endOfScheme == nil ? manifest : nil
    }

    /// True if an option excludes `--app`.
    var excludesApplication: Bool { !manifests.isEmpty || root != nil }

    /// True if an option names the root of the manifest's trust.
    var namesRoot: Bool { root != nil }

    /// The root that the container of the options has stored for its manifest, if that is refused without one and the
    /// options name none; `nil` otherwise.
    var storedRoot: String? {
        guard application == nil, root == nil, let container else { return nil }
        var target = StagingTarget(manifests: manifests)
        target.container = FilePath(container)
        return target.storedRoot?.string
    }

    /// True if the options name the packs by an application or a manifest.
    var namesPacks: Bool { application != nil || !manifests.isEmpty }

    /// Returns a command on the container, quoted; `nil` if no option names the container.
    func local(_ words: String...) -> String? {
        guard application != nil || container != nil else { return nil }
        return Self.quoted(words + applicationWords + containerWords)
    }

    /// Returns a command that reads the manifest, quoted; `nil` if no option names the packs or the container.
    func staging(_ words: String...) -> String? {
        guard namesPacks || container != nil else { return nil }
        var words = words + applicationWords
        for manifest in manifests { words += ["--manifest", manifest] }
        if let root = root ?? storedRoot { words += ["--root", root] }
        words += containerWords
        if let applicationVersion { words += ["--application-version", applicationVersion] }
        return Self.quoted(words + access)
    }

    private var applicationWords: [String] { application.map { ["--app", $0] } ?? [] }
    private var containerWords: [String] { container.map { ["--container", $0] } ?? [] }

    /// Returns the command line of this process with words added and removed, quoted.
    ///
    /// - Parameters:
    ///   - added: Options to append, before a `--`.
    ///   - removed: Options without a value to leave out.
    /// - Returns: The command, or `nil` if the daemon has started it.
    static func thisCommand(adding added: [String] = [], without removed: [String] = []) -> String?
    {
        let words = CommandLine.arguments.dropFirst()
        guard let name = words.first, name != StagingWorkerCommand.name else {
            return nil
        }
        let options = words.prefix { $0 != "--" }.filter { !removed.contains($0) }
        return quoted(options + added + words.drop { $0 != "--" })
    }

    /// Returns a command between quotation marks, with each of its words quoted for a shell.
    static func quoted(_ words: [String]) -> String {
        enclosed((["stagepack"] + words.map(CommandFailure.quoted)).joined(separator: " "))
    }

    /// Returns a command line between quotation marks.
    static func enclosed(_ command: String) -> String {
        command.utf8.contains(UInt8(ascii: "'")) ? "\"\(command)\"" : "'\(command)'"
    }
}

extension HintSource {
    /// Returns or throws the result of `body`, with this source for the hints.
    func apply<Success: Sendable>(
        _ body: () async throws(CommandFailure) -> Success
    ) async throws(CommandFailure) -> Success {
        let result = await Self.$current.withValue(self) {
            () async -> Result<Success, CommandFailure> in
            do throws(CommandFailure) {
                return .success(try await body())
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }
}

/// A command whose options name the source of packs and the access to its servers.
protocol NetworkedSubcommand: SourcedSubcommand {
    /// The options.
    var network: NetworkOptions { get }
}

/// A command whose options name the source of packs.
protocol SourcedSubcommand: StagePackSubcommand {
    /// The options.
    var source: SourceOptions { get }
}
