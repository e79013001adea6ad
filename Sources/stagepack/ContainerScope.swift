import StageContainer
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

/// The containers that a command looks at together: those of an application's group, or the one that an option names.
struct ContainerScope {
    /// The source that the options name; of all applications the group's own container, with every manifest in it.
    let session: Session
    /// The registered applications of the group; none where an option names the container.
    fileprivate(set) var applications: [ApplicationID]
    /// The containers that readers look in: the user's, then the system's.
    let containers: [FilePath]
    /// The options that hints repeat.
    let hints: HintSource

    /// The container that this user's packs are staged in.
    var own: FilePath? { session.knownContainer }

    /// The containers, open as far as they are there.
    func view() throws(CommandFailure) -> ContainerView {
        do throws(ContainerError) {
            return try ContainerView(opening: containers)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns whose container a path names; `nil` for one in another place.
    func location(of container: FilePath) -> ContainerLocation? {
        session.location(of: container)
    }
}

/// The scopes of a command that looks at every registered application where its options name none.
struct ContainerScopes {
    /// The groups of containers.
    private(set) var scopes: [ContainerScope] = []
    /// The registrations that cannot be used.
    private(set) var failures: [CommandFailure] = []
    /// Whether the options named neither an application nor a container.
    let isAll: Bool

    /// Finds the application or container that the options name, else all that are registered.
    ///
    /// - Throws: ``CommandFailure`` if the application is not registered, or the options name a manifest alone, whose
    ///   container is not known.
    init(_ source: SourceOptions) throws(CommandFailure) {
        let session = try Session(source)
        isAll = session.knownContainer == nil && source.manifest.isEmpty
        guard !isAll else {
            try addRegistered(session.target.environment)
            return
        }
        guard session.knownContainer != nil else { throw .noContainer }
        scopes.append(
            ContainerScope(
                session: session,
                applications: [session.target.registration?.application].compactMap(\.self),
                containers: session.target.containersForReading,
                hints: session.hints
            )
        )
    }

    /// That no application is registered is a failure of a command that has nothing else to look at.
    func checkForApplications() throws(CommandFailure) {
        guard scopes.isEmpty, failures.isEmpty else { return }
        throw CommandFailure(
            status: .usage,
            message: "no application is registered, and no container is named",
            hint: "pass --container DIR, or register one with 'stagepack app register FILE'",
            retry: .never
        )
    }

    /// Returns the pack with the most similar identifier in any of the scopes; `nil` if none is similar.
    func pack(similarTo id: PackID) -> PackID? {
        scopes.lazy.compactMap { $0.session.pack(similarTo: id) }.first
    }

    /// Prints the registrations that cannot be used, and returns the status of the first; else `status`.
    func conclude(_ status: ExitStatus) -> ExitStatus {
        for failure in failures { Console.report(failure, asJSON: false) }
        return failures.first?.status ?? status
    }

    private mutating func addRegistered(_ environment: [String: String]) throws(CommandFailure) {
        let folders = RegistrationFolders(environment: environment)
        let applications = try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.applications()
        }
        for id in applications {
            do throws(StagingFailure) {
                add(try folders.registration(of: id).value, environment)
            } catch {
                failures.append(CommandFailure(error))
            }
        }
    }

    private mutating func add(_ registration: Registration, _ environment: [String: String]) {
        var target = StagingTarget(environment: environment)
        target.registration = registration
        let containers = target.containersForReading
        if let index = scopes.firstIndex(where: { $0.containers == containers }) {
            scopes[index].applications.append(registration.application)
            return
        }
        target.container = target.knownContainer
        target.registration = nil
        scopes.append(
            ContainerScope(
                session: Session(target),
                applications: [registration.application],
                containers: containers,
                hints: HintSource(application: registration.application, container: nil)
            )
        )
    }
}

extension CommandFailure {
    /// A command on a container, where nothing says which.
    static var noContainer: CommandFailure {
        .usage("no container is named: pass --container DIR or --app ID")
    }
}
