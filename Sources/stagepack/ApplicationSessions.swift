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
    private(set) var waiting: [ApplicationID?]
    private var counts: [ApplicationID: Int] = [:]
    /// The registrations that the applications were run with; none for one that cannot be used.
    private var registrations: [ApplicationID: Registration] = [:]

    init(_ applications: [ApplicationID?]) { waiting = applications }

    var isEmpty: Bool { waiting.isEmpty }
    var count: Int { waiting.count }

    /// The applications that wait for their first run.
    var left: [ApplicationID] {
        waiting.compactMap(\.self).filter { counts[$0] == nil }
    }

    /// The applications whose runs are to be repeated.
    private(set) var late: [ApplicationID?] = []

    /// Notes that the run of an application is repeated after those of the others.
    mutating func setAside(_ application: ApplicationID?) { late.append(application) }

    /// Adds the applications whose runs are to be repeated.
    mutating func repeatLate() {
        waiting += late
        late = []
    }

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
        let again = waiting
        late.removeAll { again.contains($0) }
    }
}

/// Runs of several applications, where a failure of one does not stop the others.
///
/// With a deadline, the applications whose last runs are the oldest come first. Each gets an equal share of the remaining time:
/// a server that does not answer does not take the time of all applications after it. Runs whose share was too short are
/// repeated in the time that the others did not need.
struct ApplicationRuns {
    private let sessions: ApplicationSessions
    private let packs: StagingRequest.Packs
    private let output: OutputOptions
    /// `true` if there was one application at the start.
    private let isSingle: Bool
    private var queue: ApplicationQueue
    /// `false` until the first run has begun.
    private var hasBegun = false
    private var all = StagingRuns()
    /// The results of runs whose share was too short, until the runs are repeated.
    private var late: [ApplicationID?: StagingRuns] = [:]

    /// The time below which no run is repeated, and which each run gets at least: a slow server needs it for a manifest.
    private static let shortestShare = Duration.seconds(5)
    /// The time below which no run but the first begins: one with nothing to do needs less.
    private static let shortestRun = Duration.seconds(1)

    /// Stages for one application after the other, with the registration that is on disk then.
    ///
    /// - Returns: The reports, and the failures of applications whose runs failed as a whole; with a failure that names the
    ///   applications that are left after the deadline or a signal.
    /// - Throws: The failure, if the applications cannot be listed, or if there is only one run, which failed as a whole.
    static func run(
        _ sessions: ApplicationSessions,
        packs: StagingRequest.Packs,
        output: OutputOptions
    ) async throws(CommandFailure) -> StagingRuns {
        var runs = try ApplicationRuns(sessions, packs: packs, output: output)
        try await runs.runAll()
        return runs.all
    }

    private init(
        _ sessions: ApplicationSessions,
        packs: StagingRequest.Packs,
        output: OutputOptions
    ) throws(CommandFailure) {
        let applications = try sessions.applications()
        self.sessions = sessions
        self.packs = packs
        self.output = output
        isSingle = applications.count == 1
        queue = ApplicationQueue(
            Deadline.current == nil || isSingle
                ? applications : sessions.orderedByLastRun(applications)
        )
    }

    private mutating func runAll() async throws(CommandFailure) {
        while let application = nextApplication() {
            hasBegun = true
            let earlier = late.removeValue(forKey: application)
            var session: Session?
            do throws(CommandFailure) {
                session = try sessions.session(of: application)
                guard let session else {
                    if let earlier { all.add(earlier) }
                    continue
                }
                queue.begin(session)
                var attempt = try await session.hints.apply { () throws(CommandFailure) in
                    try await stage(session, isRepetition: earlier != nil)
                }
                if let earlier { attempt.runs.addResults(of: earlier) }
                if attempt.isLate {
                    late[application] = attempt.runs
                    queue.setAside(application)
                } else {
                    all.add(attempt.runs)
                }
                if Task.isCancelled { break }
            } catch {
                let isObsolete = session?.target.isObsolete ?? false
                if !Task.isCancelled, queue.mayRepeat(application), isObsolete {
                    // The application runs again with its new registration, if it has one.
                    queue.forget(application)
                    late[application] = earlier
                    Console.note("stagepack: \(error.message.escapedForDisplay)")
                    continue
                }
                if isSingle, queue.isEmpty, all.isEmpty, late.isEmpty { throw error }
                all.failures.append(error)
                all.reports += earlier?.reports ?? []
                // The deadline and signals end the runs of all applications.
                if error.status == .interrupted || Task.isCancelled { break }
            }
        }
        conclude()
    }

    /// The time until the command's deadline; `nil` if it has none.
    private var timeLeft: Duration? { Deadline.current.map { $0 - ContinuousClock.now } }

    /// Returns whether a time is left until the deadline.
    private func hasLeft(_ time: Duration) -> Bool { timeLeft.map { $0 >= time } ?? true }

    /// Returns the next application; `nil` at the end, or if the deadline is too near for another run.
    private mutating func nextApplication() -> ApplicationID?? {
        if queue.isEmpty { queue.add(from: sessions) }
        guard hasLeft(Self.shortestRun) || !hasBegun else { return nil }
        if queue.isEmpty, hasLeft(Self.shortestShare) { queue.repeatLate() }
        guard !queue.isEmpty else { return nil }
        return .some(queue.next())
    }

    /// The result of one run.
    private struct Attempt: Sendable {
        var runs: StagingRuns
        /// `true` if the run is not complete at the end of its share.
        var isLate = false
    }

    /// Stages for one application, in its share of the time that is left.
    private func stage(
        _ session: Session,
        isRepetition: Bool
    ) async throws(CommandFailure) -> Attempt {
        var run = try StagingRun(packs, session: session, output: output)
        run.request.isRepetition = isRepetition
        guard let share = shareOfTime() else { return Attempt(runs: try await run.run()) }
        let limited = run
        let (result, interruption) = await withInterruption(after: share) {
            () async -> Result<StagingRuns, CommandFailure> in
            do throws(CommandFailure) {
                return .success(try await limited.run())
            } catch {
                return .failure(error)
            }
        }
        let isLate = interruption == .deadline
        switch result {
        case .success(let runs):
            return Attempt(runs: runs, isLate: isLate && !runs.isComplete)
        case .failure(let failure):
            guard isLate, [.interrupted, .unfinished].contains(failure.status) else {
                throw failure
            }
            let cut = failure.asInterrupted(by: .deadline)
            return Attempt(runs: StagingRuns(failures: [cut]), isLate: true)
        }
    }

    /// Returns the time for the application that was taken from the queue; `nil` if only the command's own deadline limits it, if
    /// there is one.
    private func shareOfTime() -> Duration? {
        guard let rest = timeLeft, !queue.isEmpty else { return nil }
        let share = max(rest / (queue.count + 1), Self.shortestShare)
        return share < rest ? share : nil
    }

    /// Adds the results of runs that were not repeated, and the failure that names the applications without a run.
    private mutating func conclude() {
        for application in queue.late + queue.waiting {
            if let runs = late.removeValue(forKey: application) { all.add(runs) }
        }
        // Applications that were unregistered meanwhile.
        for runs in late.values { all.add(runs) }
        late = [:]
        let names = queue.left.map { "'\($0)'" }.joined(separator: ", ")
        guard !names.isEmpty else { return }
        var failure = CommandFailure(StageError.cancelled)
        if hasLeft(Self.shortestRun) {
            failure.message = "interrupted before the run for \(names)"
        } else {
            failure.status = .unfinished
            failure.message = "the deadline left no time for \(names)"
            failure.hint = "run the same command again: it begins with what it did not reach"
        }
        all.failures.append(failure)
    }
}

extension ApplicationSessions {
    /// Returns the applications in the order of their last runs, those without one first.
    fileprivate func orderedByLastRun(_ applications: [ApplicationID?]) -> [ApplicationID?] {
        let dated = applications.map { (application: $0, date: lastRun(of: $0) ?? .min) }
        // The sort is stable: runs of the same second keep the order of the names.
        return dated.sorted { $0.date < $1.date }.map { $0.application }
    }

    /// Returns the end of an application's last run, in seconds since 1970; `nil` if there is none, or if a file cannot be read,
    /// which the next run reports.
    private func lastRun(of application: ApplicationID?) -> Int64? {
        guard let id = application, let path = (try? session(of: id))?.target.knownContainer,
            let reader = try? ContainerReader.open(path)
        else { return nil }
        return (try? reader.history(of: id))?.lastRun?.endedAt
    }
}

extension StagingRuns {
    /// `true` if no run has ended yet.
    fileprivate var isEmpty: Bool { reports.isEmpty && failures.isEmpty }

    /// `true` if nothing of the runs failed.
    fileprivate var isComplete: Bool {
        failures.isEmpty && reports.allSatisfy(\.isComplete)
    }

    fileprivate mutating func add(_ others: StagingRuns) {
        reports += others.reports
        failures += others.failures
    }

    /// Adds the results of an earlier run of the same application.
    fileprivate mutating func addResults(of earlier: StagingRuns) {
        if reports.isEmpty {
            reports = earlier.reports
            return
        }
        for index in reports.indices {
            let application = reports[index].application
            guard let other = earlier.reports.first(where: { $0.application == application }) else {
                continue
            }
            reports[index].addResults(of: other)
        }
    }
}

extension StagingReport {
    /// `true` if nothing of the run failed.
    fileprivate var isComplete: Bool { failures.isEmpty && manifestProblem == nil }

    /// Adds what an earlier run has staged, received, evicted and removed.
    fileprivate mutating func addResults(of earlier: StagingReport) {
        transferred += earlier.transferred
        if let evictions = earlier.evicted { evicted = evictions + (evicted ?? []) }
        if let packs = earlier.removed { removed = packs + (removed ?? []) }
        files =
            files.map { files in
                files.map { file in
                    let other = earlier.files?.first { $0.identifier == file.identifier }
                    guard file.outcome == .present, let other, other.outcome == .staged else {
                        return file
                    }
                    return other
                }
            } ?? earlier.files
        for index in packs.indices {
            let id = packs[index].id
            guard let other = earlier.packs.first(where: { $0.id == id }) else { continue }
            if other.outcome == .staged, packs[index].outcome == .present {
                packs[index] = other
            } else if let bytes = other.transferred {
                packs[index].transferred = (packs[index].transferred ?? .zero) + bytes
            }
        }
    }
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
