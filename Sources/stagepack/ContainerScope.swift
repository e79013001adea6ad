import StageContainer
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

/// The containers that a command reads together: those of an application's group, or the one that an option
/// names.
struct ContainerScope {
    /// The session for the options; for all applications, the session for the group's container, with every
    /// manifest in it.
    let session: Session
    /// The registered applications of the group; empty if an option names the container.
    fileprivate(set) var applications: [ApplicationID]
    /// The containers that readers search: the user's, then the system's.
    let containers: [FilePath]
    /// The options that hints repeat.
    let hints: HintSource

    /// The container in which this user's packs are staged.
    var own: FilePath? { session.knownContainer }

    /// True if a container exists that is not this user's, and can be read.
    fileprivate var hasOtherContainer: Bool {
        guard let view = try? view() else { return false }
        return view.positions.contains { view.containers[$0] != own }
    }

    /// Opens the containers that exist.
    func view() throws(CommandFailure) -> ContainerView {
        do throws(ContainerError) {
            return try ContainerView(opening: containers)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns the owner of a container, user or system; `nil` for a container at another path.
    func location(of container: FilePath) -> ContainerLocation? {
        session.location(of: container)
    }
}

/// The scopes of a command that reads all registered applications if its options name none.
struct ContainerScopes {
    /// The groups of containers.
    private(set) var scopes: [ContainerScope] = []
    /// The failures for registrations that cannot be used, and for containers that cannot be read.
    private(set) var failures: [CommandFailure] = []
    /// Set if the options name neither an application nor a container.
    let isAll: Bool

    /// Finds the application or container that the options name, else all registered applications.
    ///
    /// - Throws: ``CommandFailure`` if the application is not registered, or if the options name only a
    ///   manifest, whose container is not known.
    init(_ source: SourceOptions) throws(CommandFailure) {
        let session = try Session(source)
        isAll = session.knownContainer == nil && source.manifest.isEmpty
        guard !isAll else {
            try addRegistered(in: session.target.environment)
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

    /// The hint for a command that has no container to read.
    static let hintToRegister =
        "pass --container DIR, or register one with 'stagepack app register FILE'"

    private static var noApplication: String {
        "no application is registered, and no container is named"
            + RegistrationFolders(environment: ProcessEnvironment.current).noteOfMissingHome
    }

    /// Fails if no application is registered, for a command that names a pack and then has no container to read.
    func checkForApplications() throws(CommandFailure) {
        guard scopes.isEmpty, failures.isEmpty else { return }
        throw CommandFailure(
            status: .usage,
            message: Self.noApplication,
            hint: Self.hintToRegister,
            retryAdvice: .never
        )
    }

    /// Tells people that no application is registered, after a command that prints nothing for that reason.
    func noteNoApplication(asJSON: Bool) {
        guard !asJSON, scopes.isEmpty, failures.isEmpty else { return }
        Console.note("\(Self.noApplication)\nhint: \(Self.hintToRegister)")
    }

    /// Opens the containers of a scope.
    ///
    /// - Throws: ``CommandFailure`` also if the options name the container and it does not exist.
    func view(of scope: ContainerScope) throws(CommandFailure) -> ContainerView {
        let view = try scope.view()
        if view.isEmpty, !isAll, let named = scope.session.target.container {
            throw CommandFailure(ContainerError.absence(at: named))
        }
        return view
    }

    /// Tells people that nothing is staged, after a command that prints nothing because no container exists.
    ///
    /// Pass `true` for `changesOwn` after a command that changes only the container of this user: if the system's
    /// container exists, the note then contains the command that changes it.
    func noteNothingStaged(asJSON: Bool, changesOwn: Bool = false) {
        guard !scopes.isEmpty else { return noteNoApplication(asJSON: asJSON) }
        guard !asJSON, failures.isEmpty else { return }
        if changesOwn, scopes.contains(where: \.hasOtherContainer),
            let command = HintSource.thisCommand()
        {
            Console.note(
                "nothing is staged in this user's container yet; "
                    + "as root, run \(command) for the system's"
            )
        } else {
            Console.note("nothing is staged yet")
        }
    }

    /// Returns the pack with the most similar identifier in any of the scopes; `nil` if none is similar.
    func pack(similarTo id: PackID) -> PackID? {
        scopes.lazy.compactMap { $0.session.pack(similarTo: id) }.first
    }

    /// Records the failure of a scope, so that the command continues with the others; throws it if the options name the scope.
    mutating func record(_ failure: CommandFailure) throws(CommandFailure) {
        guard isAll else { throw failure }
        failures.append(failure)
    }

    /// Throws the first recorded failure, for a command that does not find its pack in the scopes that can be read.
    func checkForFailures() throws(CommandFailure) {
        if let failure = failures.first { throw failure }
    }

    /// Prints the result of a command with the recorded failures and with `others`, and returns the status of the first of
    /// them, or `status` if there is none.
    ///
    /// With `isChange`, the result is the summary of a change, and is not printed with `--quiet`.
    func conclude(
        _ value: some Encodable & CustomStringConvertible,
        status: ExitStatus = .success,
        others: [CommandFailure] = [],
        asJSON: Bool,
        isChange: Bool = false
    ) -> ExitStatus {
        let failures = failures + others
        if isChange {
            Console.print(change: value, failures: failures, asJSON: asJSON)
        } else {
            Console.print(value, failures: failures, asJSON: asJSON)
        }
        return failures.first?.status ?? status
    }

    private mutating func addRegistered(in environment: [String: String]) throws(CommandFailure) {
        let folders = RegistrationFolders(environment: environment)
        let applications = try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.applications()
        }
        for id in applications {
            do throws(StagingFailure) {
                add(try folders.registration(of: id).value, in: environment)
            } catch {
                failures.append(CommandFailure(error))
            }
        }
    }

    private mutating func add(_ registration: Registration, in environment: [String: String]) {
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
                hints: HintSource.current.ofApplication(registration.application)
            )
        )
    }
}

extension CommandFailure {
    /// The failure of a command that needs a container, if the options name none.
    static var noContainer: CommandFailure {
        let application =
            HintSource.current.excludesApplication
            ? ", or --app ID in place of --manifest and --root" : " or --app ID"
        var failure = CommandFailure.usage(
            "no container is named: pass --container DIR\(application)"
        )
        failure.hint = onlyApplication
        return failure
    }

    /// The command line with the only registered application, for a hint; `nil` if none or several are
    /// registered, or if an option excludes `--app`.
    static var onlyApplication: String? {
        guard !HintSource.current.excludesApplication else { return nil }
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        // The failure needs no hint if the folders cannot be read.
        guard let applications = try? folders.applications(), applications.count == 1 else {
            return nil
        }
        return HintSource.thisCommand(adding: ["--app", applications[0].text]).map { "run \($0)" }
    }
}
