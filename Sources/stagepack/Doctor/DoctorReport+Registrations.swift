import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StageTransfer
import StagingService
import SystemPackage

extension DoctorReport {
    mutating func addNoApplication() {
        add(
            .note,
            "applications",
            "none is registered",
            "run 'stagepack app register FILE', or pass --container DIR"
        )
    }

    /// Says whether the registration of an application can be used, and what it names is there.
    mutating func checkRegistration(of id: ApplicationID, in folders: RegistrationFolders) {
        let subject = "registration of \(id)"
        // That the application has none is the failure of the command.
        guard let path = RegistrationLocations.files(of: id, in: folders.folders).last else {
            return
        }
        let validate = Self.run(HintSource.quoted(["app", "validate", path.string]))
        let registration: Registration
        do throws(StagingFailure) {
            registration = try folders.registration(of: id).value
        } catch {
            return add(.problem, subject, "\(error)", validate)
        }
        let findings =
            AppValidateCommand.findings(path).map(\.finding) + missingManifests(of: registration)
        for finding in findings { add(.problem, subject, finding, validate) }
        if findings.isEmpty { add(.good, subject, "version \(registration.version), '\(path)'") }
    }

    /// The manifests that are files of this machine and are not there.
    private func missingManifests(of registration: Registration) -> [String] {
        registration.manifestURLs.compactMap { text in
            guard let url = URL(string: text), url.isFileURL,
                !FileStatus.exists(FilePath(url.path(percentEncoded: false)))
            else { return nil }
            return "manifestURLs: '\(text.forDisplay())' is not there"
        }
    }

    /// Asks the servers for the manifests of a command's applications.
    mutating func checkServers(
        _ scopes: ContainerScopes,
        _ source: SourceOptions,
        _ network: NetworkOptions
    ) async {
        for scope in scopes.scopes {
            guard !scope.applications.isEmpty else {
                await checkServer(of: "the manifests", scope.hints) { () throws(CommandFailure) in
                    try Session(source, network)
                }
                continue
            }
            for id in scope.applications {
                let hints = scope.hints.ofApplication(id)
                await checkServer(of: id.text, hints) { () throws(CommandFailure) in
                    try Session(id, source, network)
                }
            }
        }
    }

    private mutating func checkServer(
        of name: String,
        _ hints: HintSource,
        _ session: () throws(CommandFailure) -> Session
    ) async {
        let subject = "server of \(name)"
        do throws(CommandFailure) {
            var request = try session().request(.event(nil, essentialOnly: false))
            request.isDryRun = true
            let checked = request
            let revisions = try await hints.apply { () throws(CommandFailure) in
                do throws(StagingFailure) {
                    let service = StagingService(checked, logger: Log.logger)
                    return try await service.checkManifests()
                } catch {
                    throw CommandFailure(error)
                }
            }
            for revision in revisions { add(.good, subject, "offers \(revision.asManifestText)") }
        } catch {
            var failure = error
            failure.hint = HintSource.$current.withValue(hints) { Self.pasteable(error.hint) }
            add(failure, subject)
        }
    }

    /// A hint with a command: advice that has none is followed by the command that tries again.
    static func pasteable(_ hint: String?) -> String? {
        guard let command = HintSource.current.staging("prefetch") else { return hint }
        guard let hint else { return "run \(command)" }
        if hint.contains("stagepack ") { return hint }
        let isRepetition = hint.hasSuffix("run it again")
        return isRepetition ? "\(hint): \(command)" : "\(hint), then run \(command)"
    }
}
