import StageContainer
import StageEngine
import StageModel
import StageSystem
import StagingService

/// The applications whose packs a command stages; the registration of each is read when its run begins.
struct ApplicationSessions: Sendable {
    let source: SourceOptions
    let network: NetworkOptions
    /// `true` for every registered application, `false` for the one that ``source`` names.
    let isForAll: Bool

    var folders: RegistrationFolders {
        RegistrationFolders(environment: ProcessEnvironment.current)
    }

    /// Returns the registered applications, or a single `nil` for the application or manifest that the options name.
    func applications() throws(CommandFailure) -> [ApplicationID?] {
        guard isForAll else { return [nil] }
        return try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.applications()
        }
    }

    /// Returns the session for an element of ``applications()``; `nil` if the application is no longer registered.
    func session(of application: ApplicationID?) throws(CommandFailure) -> Session? {
        guard let id = application else { return try Session(source, network: network) }
        guard !RegistrationLocations.files(of: id, in: folders.folders).isEmpty else { return nil }
        return try Session(application: id, source: source, network: network)
    }
}

/// The applications that still have to run; each runs once more if its registration has changed meanwhile.
private struct ApplicationQueue {
    private var waiting: [ApplicationID?]
    private var counts: [ApplicationID: Int] = [:]
    /// The registrations that the applications were run with; none for one that cannot be used.
    private var registrations: [ApplicationID: Registration] = [:]

    init(_ applications: [ApplicationID?]) { waiting = applications }

    var isEmpty: Bool { waiting.isEmpty }

    mutating func next() -> ApplicationID? {
        let application = waiting.removeFirst()
        if let application { counts[application, default: 0] += 1 }
        return application
    }

    /// Records the registration that an application is run with.
    mutating func begin(_ session: Session) {
        guard let registration = session.target.registration else { return }
        registrations[registration.application] = registration
    }

    /// Forgets the registration that an application was run with, so that the application runs again if it is registered.
    mutating func forget(_ application: ApplicationID?) {
        if let application { registrations[application] = nil }
    }

    /// Returns whether an application may run again.
    func mayRepeat(_ application: ApplicationID?) -> Bool {
        application.map { counts[$0, default: 0] < 2 } ?? false
    }

    /// Adds the applications that were registered, or whose registration has changed, since the last run.
    mutating func add(from sessions: ApplicationSessions) {
        // An error in listing the applications was reported at the start, or the next run reports it.
        guard sessions.isForAll, let applications = try? sessions.applications() else { return }
        waiting += applications.filter { application in
            guard let application, mayRepeat(application) else { return false }
            guard counts[application] != nil else { return true }
            // The file may be invalid as it was before, and was reported then.
            guard let found = try? sessions.folders.registration(of: application) else {
                return false
            }
            return registrations[application] != found.value
        }
    }
}

/// Runs of several applications, where a failure of one does not stop the others.
enum ApplicationRuns {
    /// Stages for one application after the other, with the registration that is on disk then.
    ///
    /// - Returns: The reports, and the failures of applications whose runs failed as a whole; with a failure of
    ///   ``ExitStatus/interrupted`` if applications are left after the deadline or a signal, and no run failed.
    /// - Throws: The failure, if the applications cannot be listed, or if there is only one run, which failed as a whole.
    static func run(
        _ sessions: ApplicationSessions,
        packs: StagingRequest.Packs,
        output: OutputOptions
    ) async throws(CommandFailure) -> StagingRuns {
        let applications = try sessions.applications()
        var queue = ApplicationQueue(applications)
        var all = StagingRuns()
        while true {
            if queue.isEmpty { queue.add(from: sessions) }
            if queue.isEmpty { break }
            let application = queue.next()
            var session: Session?
            do throws(CommandFailure) {
                session = try sessions.session(of: application)
                guard let session else { continue }
                queue.begin(session)
                let runs = try await session.hints.apply { () throws(CommandFailure) in
                    try await StagingRun(packs, session: session, output: output).run()
                }
                all.reports += runs.reports
                all.failures += runs.failures
                guard Task.isCancelled else { continue }
                // Reports with failures have a status of their own.
                let isComplete = all.failures.isEmpty && all.reports.allSatisfy(\.isComplete)
                if !queue.isEmpty, isComplete {
                    all.failures.append(CommandFailure(StageError.cancelled))
                }
                break
            } catch {
                let isObsolete = session?.target.isObsolete ?? false
                if !Task.isCancelled, queue.mayRepeat(application), isObsolete {
                    // The application runs again with its new registration, if it has one.
                    queue.forget(application)
                    Console.note("stagepack: \(error.message.escapedForDisplay)")
                    continue
                }
                if applications.count == 1, queue.isEmpty, all.isEmpty { throw error }
                all.failures.append(error)
                // The deadline and signals end the runs of all applications.
                if error.status == .interrupted || Task.isCancelled { break }
            }
        }
        return all
    }
}

extension StagingRuns {
    /// `true` if no run has ended yet.
    fileprivate var isEmpty: Bool { reports.isEmpty && failures.isEmpty }
}

extension StagingReport {
    /// `true` if nothing of the run failed.
    fileprivate var isComplete: Bool { failures.isEmpty && manifestProblem == nil }
}

extension Result {
    /// Returns the result or the error of `body`.
    static func catching(_ body: () throws(Failure) -> Success) -> Self {
        do throws(Failure) {
            return .success(try body())
        } catch {
            return .failure(error)
        }
    }
}
