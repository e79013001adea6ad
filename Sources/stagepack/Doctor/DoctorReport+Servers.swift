import StageModel
import StagingService

extension DoctorReport {
    /// The most time to wait for the manifests of an application.
    private static let timeLimit = Duration.seconds(30)

    /// Requests the manifests of the command's applications from their servers.
    ///
    /// A silent server takes half a minute: pass `true` for `printsEach` to print the checks of the machine before that, and
    /// each server's at its end.
    ///
    /// - Throws: ``CommandFailure`` if a signal interrupts the command.
    mutating func checkServers(
        of scopes: ContainerScopes,
        source: SourceOptions,
        network: NetworkOptions,
        printsEach: Bool
    ) async throws(CommandFailure) {
        for scope in scopes.scopes {
            guard !scope.applications.isEmpty else {
                if printsEach { printNewChecks() }
                try await checkServer(of: "the manifests", hints: scope.hints) {
                    () throws(CommandFailure) in
                    try Session(source, network: network)
                }
                continue
            }
            for id in scope.applications {
                if printsEach { printNewChecks() }
                let hints = scope.hints.ofApplication(id)
                try await checkServer(of: id.text, hints: hints) { () throws(CommandFailure) in
                    try Session(application: id, source: source, network: network)
                }
            }
        }
    }

    private mutating func checkServer(
        of name: String,
        hints: HintSource,
        session: () throws(CommandFailure) -> Session
    ) async throws(CommandFailure) {
        let subject = "server of \(name)"
        if Console.isInteractive {
            Console.note("asking the \(subject), for at most \(Self.timeLimit.inWords)")
        }
        do throws(CommandFailure) {
            var request = try session().request(.event(nil, essentialOnly: false))
            request.isDryRun = true
            let checked = request
            let revisions = try await hints.apply { () async throws(CommandFailure) in
                try await Self.revisions(for: checked)
            }
            for revision in revisions {
                add(.good, subject: subject, finding: "offers \(revision.asManifestText)")
            }
        } catch {
            if error.status == .interrupted { throw error }
            var failure = error
            failure.hint = HintSource.$current.withValue(hints) { Self.pasteable(error.hint) }
            add(failure, subject: subject)
        }
    }

    /// Returns the revisions of the manifests that the servers offer.
    private static func revisions(
        for request: StagingRequest
    ) async throws(CommandFailure) -> [Int?] {
        let (result, interruption) = await withInterruption(after: timeLimit) {
            () async -> Result<[Int?], StagingFailure> in
            do throws(StagingFailure) {
                let service = StagingService(request, logger: Log.logger)
                return .success(try await service.checkManifests())
            } catch {
                return .failure(error)
            }
        }
        switch result {
        case .success(let revisions): return revisions
        case .failure(let failure):
            var failure = CommandFailure(failure)
            if interruption == .deadline, failure.status == .interrupted {
                let subject = failure.requestedManifest ?? "the manifest"
                failure.status = .unfinished
                failure.message = "\(subject) did not come within \(timeLimit.inWords)"
                failure.hint = StagingAdvice.checkNetwork.text(after: nil, about: nil)
            }
            throw failure
        }
    }
}
