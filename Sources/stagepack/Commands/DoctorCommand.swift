import ArgumentParser
import StageContainer
import StageModel
import StageSystem
import StagingService

struct DoctorCommand: NetworkedSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "Check the machine, the registrations and the containers, and say what to do.",
        discussion: """
            Checks the registrations, manifests, signed metadata and their expiry, the containers and \
            their file systems, essential packs that are missing, failures of the last runs, the \
            clock, and the units of systemd. Without --app and --container, for every application \
            that is registered. Each problem has one hint. Uses no network without '--online'. Ends \
            with status 3 if there is a problem, and with 0 if there are notes at most.
            """
    )

    @Flag(help: "Ask the servers for their manifests, too, which checks their certificates.")
    var online = false

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup var scope: ScopeOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    mutating func validate() throws {
        try scope.check(with: source)
        if online, network.isOffline {
            throw ValidationError("--online and --offline cannot be combined.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        var report = DoctorReport()
        let environment = ProcessEnvironment.current
        let isOffline = network.isOffline || NetworkOptions.isOffline(environment)
        report.checkMachine(isOffline: isOffline)
        await report.checkDaemons(environment: environment)
        let isOfContainer = source.container != nil || !source.manifest.isEmpty
        let folders = RegistrationFolders(environment: environment)
        if !isOfContainer {
            await report.checkUnits(environment: environment, folders: folders)
            report.checkFolders(folders)
            report.checkWriters()
            report.checkFolderOfPackages(environment: environment)
            let applications = try applications(folders)
            if applications.isEmpty { report.addNoApplication(in: folders) }
            if source.app == nil { report.checkNames(in: folders) }
            for id in applications { report.checkRegistration(of: id, in: folders) }
            report.checkOtherGroups(of: applications, environment: environment)
        }
        if let scopes = try scopes(folders) {
            for scope in scopes.scopes {
                HintSource.$current.withValue(scope.hints) {
                    report.check(scope, registrations: folders)
                }
            }
            if online, isOffline {
                report.add(
                    .note,
                    subject: "servers",
                    finding: "not asked: STAGEPACK_OFFLINE is set",
                    hint: "unset STAGEPACK_OFFLINE, and run it again"
                )
            } else if online {
                try await report.checkServers(
                    of: scopes,
                    source: source,
                    network: network,
                    printsEach: !json
                )
            }
        }
        Console.print(report, asJSON: json)
        return report.hasProblems ? .findings : .success
    }

    /// Returns the application that the options name, else all registered ones.
    private func applications(
        _ folders: RegistrationFolders
    ) throws(CommandFailure) -> [ApplicationID] {
        try CommandFailure.wrapping { () throws(StagingFailure) in
            guard let app = source.app else { return try folders.applications() }
            return [try folders.identifier(named: app)]
        }
    }

    /// Returns the containers to check; `nil` if the registration that names them cannot be used, which is a
    /// finding of its own.
    private func scopes(
        _ folders: RegistrationFolders
    ) throws(CommandFailure) -> ContainerScopes? {
        do throws(CommandFailure) {
            return try ContainerScopes(source)
        } catch {
            let isRegistered = try applications(folders).contains { id in
                !RegistrationLocations.files(of: id, in: folders.folders).isEmpty
            }
            guard source.app != nil, error.status == .manifestInvalid, isRegistered else {
                throw error
            }
            return nil
        }
    }
}
