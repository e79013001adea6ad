import StageModel
import StagingService

extension DoctorReport {
    /// The most time to wait for the manifests of an application.
    fileprivate static let timeLimit = Duration.seconds(30)
    /// The most applications whose servers are asked at the same time.
    private static let width = 8

    /// Requests the manifests of the command's applications from their servers, of several applications at the same time.
    ///
    /// The checks are in the order of the applications. A silent server takes half a minute: pass `true` for `printsEach` to print
    /// the checks of the machine before that, and each server's once those before it have ended.
    ///
    /// - Throws: ``CommandFailure`` if a signal interrupts the command.
    mutating func checkServers(
        of scopes: ContainerScopes,
        source: SourceOptions,
        network: NetworkOptions,
        printsEach: Bool
    ) async throws(CommandFailure) {
        if printsEach { printNewChecks() }
        let checks = Self.serverChecks(of: scopes, source: source, network: network)
        var ended: [Int: ServerCheck.Answer] = [:]
        var reported = 0
        var interruption: CommandFailure?
        await withTaskGroup(of: (Int, ServerCheck.Answer).self) { group in
            var started = 0
            while started < min(Self.width, checks.count) {
                let (number, check) = (started, checks[started])
                group.addTask { (number, await check.answer()) }
                started += 1
            }
            while let (number, answer) = await group.next() {
                if case .failure(let failure) = answer, failure.status == .interrupted {
                    interruption = failure
                }
                // A signal interrupts all requests, and none begins after it.
                guard interruption == nil else { continue }
                if started < checks.count {
                    let (number, check) = (started, checks[started])
                    group.addTask { (number, await check.answer()) }
                    started += 1
                }
                ended[number] = answer
                while let answer = ended.removeValue(forKey: reported) {
                    add(answer, of: checks[reported])
                    reported += 1
                    if printsEach { printNewChecks() }
                }
            }
        }
        if let interruption { throw interruption }
    }

    private mutating func add(_ answer: ServerCheck.Answer, of check: ServerCheck) {
        switch answer {
        case .success(let revisions):
            for revision in revisions {
                add(.good, subject: check.subject, finding: "offers \(revision.asManifestText)")
            }
        case .failure(let error):
            var failure = error
            failure.hint = HintSource.$current.withValue(check.hints) { Self.pasteable(error.hint) }
            add(failure, subject: check.subject)
        }
    }

    /// Returns the requests for the manifests of the applications, or for those that the options name.
    private static func serverChecks(
        of scopes: ContainerScopes,
        source: SourceOptions,
        network: NetworkOptions
    ) -> [ServerCheck] {
        var checks: [ServerCheck] = []
        for scope in scopes.scopes {
            if scope.applications.isEmpty {
                let request = ServerCheck.request { () throws(CommandFailure) in
                    try Session(source, network: network)
                }
                checks.append(
                    ServerCheck(of: "the manifests", hints: scope.hints, request: request)
                )
            }
            for id in scope.applications {
                let request = ServerCheck.request { () throws(CommandFailure) in
                    try Session(application: id, source: source, network: network)
                }
                let hints = scope.hints.ofApplication(id)
                checks.append(ServerCheck(of: id.text, hints: hints, request: request))
            }
        }
        return checks
    }
}

/// A request for the manifests of an application.
private struct ServerCheck: Sendable {
    /// The revisions of the manifests that the servers offer, or the reason why they cannot be used.
    typealias Answer = Result<[Int?], CommandFailure>

    let subject: String
    let hints: HintSource
    private let request: Result<StagingRequest, CommandFailure>

    init(of name: String, hints: HintSource, request: Result<StagingRequest, CommandFailure>) {
        subject = "server of \(name)"
        self.hints = hints
        self.request = request
    }

    /// Returns the request of a session; it keeps nothing.
    static func request(
        _ session: () throws(CommandFailure) -> Session
    ) -> Result<StagingRequest, CommandFailure> {
        do throws(CommandFailure) {
            var request = try session().request(.event(nil, essentialOnly: false))
            request.isDryRun = true
            return .success(request)
        } catch {
            return .failure(error)
        }
    }

    /// Sends the request.
    func answer() async -> Answer {
        let limit = DoctorReport.timeLimit
        if Console.isInteractive {
            Console.note("asking the \(subject), for at most \(limit.inWords)")
        }
        let checked: StagingRequest
        switch request {
        case .success(let request): checked = request
        case .failure(let failure): return .failure(failure)
        }
        return await HintSource.$current.withValue(hints) { () async -> Answer in
            let (result, interruption) = await withInterruption(after: limit) {
                await Self.revisions(for: checked)
            }
            return result.mapError { Self.failure($0, after: interruption) }
        }
    }

    /// Returns the revisions of the manifests that the servers offer.
    private static func revisions(
        for request: StagingRequest
    ) async -> Result<[Int?], StagingFailure> {
        do throws(StagingFailure) {
            let service = StagingService(request, logger: Log.logger)
            return .success(try await service.checkManifests())
        } catch {
            return .failure(error)
        }
    }

    private static func failure(
        _ error: StagingFailure,
        after interruption: Interruption?
    ) -> CommandFailure {
        var failure = CommandFailure(error)
        if interruption == .deadline, failure.status == .interrupted {
            let subject = failure.requestedManifest ?? "the manifest"
            let limit = DoctorReport.timeLimit
            failure.status = .unfinished
            failure.message = "\(subject) did not come within \(limit.inWords)"
            failure.hint = StagingAdvice.checkNetwork.text(after: nil, about: nil)
        }
        return failure
    }
}
