import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StagePack
import StageSystem
import StagingService

/// A run inside a hook of a package manager, which it must neither delay nor break.
///
/// Stages only essential packs. Prints a line at the start and one for each application, and leaves the rest
/// to the periodic run, which reads the history of the application. Starts no services and waits for nothing
/// beyond the deadline, so it works the same in a chroot, during an image build, with a `policy-rc.d`, and on
/// a machine without systemd.
struct HookRun: Sendable {
    let sessions: ApplicationSessions
    let event: ContentRequest?
    /// Time limit for all applications together.
    let timeLimit: Duration
    let output: OutputOptions

    /// Returns the time limit from the option, the environment or the configuration file, or else 60 seconds; warns of a
    /// variable that is not a number.
    ///
    /// In a privileged process the variable only shortens the deadline: another user may have set it.
    static func timeLimit(option: Double?, environment: [String: String]) -> Duration {
        let limits = 0...1e9
        if let option, limits.contains(option) { return .seconds(option) }
        // The runs of the applications report a configuration file that cannot be used, and fail.
        let usual = (try? SettingsFile.settings())?.hookTimeLimit ?? .seconds(60)
        var timeLimit = usual
        if let text = environment["STAGEPACK_HOOK_DEADLINE"], !text.isEmpty {
            if let seconds = Double(text), limits.contains(seconds) {
                let variable = Duration.seconds(seconds)
                timeLimit = ProcessEnvironment.isPrivileged ? min(usual, variable) : variable
            } else {
                Console.note(
                    "stagepack: warning: STAGEPACK_HOOK_DEADLINE is '\(text.forDisplay())', expected seconds; "
                        + "the deadline is \(usual.inWords)"
                )
            }
        }
        return timeLimit
    }

    /// Stages, and prints a line at the start and one for each application.
    ///
    /// - Parameter isStrict: Pass `true` if a run without applications is a failure.
    /// - Returns: The status of the first of the most severe failures.
    /// - Throws: ``CommandFailure`` if the applications cannot be listed.
    func run(isStrict: Bool) async throws(CommandFailure) -> ExitStatus {
        // A signal that arrives between two applications must not end the process before it has reported the others.
        let scope = InterruptingSignals.shared.begin()
        defer { InterruptingSignals.shared.end(scope) }
        let start = ContinuousClock.now
        var order = HookOrder(try sessions.applications(), of: sessions)
        announce(order)
        var status = isStrict && order.entries.isEmpty ? reportNoApplication() : .success
        for ending in misnamedFiles() { report(ending, worsening: &status) }
        // The endings of runs that more time may complete, until their lines are printed.
        var late: [ApplicationID?: Ending] = [:]
        var isInterrupted = false
        repeat {
            for (index, entry) in order.entries.enumerated() {
                let application = entry.application
                if isInterrupted {
                    late[application] = late[application] ?? Self.endingWithoutRun(application)
                    continue
                }
                let remaining = max(.zero, timeLimit - (ContinuousClock.now - start))
                let share = order.share(of: remaining, at: index)
                let earlier = late.removeValue(forKey: application)
                let mayRepeat = earlier == nil && entry.rank != .complete
                let othersWait = index + 1 < order.entries.count || !late.isEmpty
                let attempt = Attempt(
                    application: application,
                    share: share,
                    lockTimeLimit: mayRepeat && othersWait ? Self.lockTimeLimit : nil
                )
                guard let ending = await run(attempt, after: earlier) else {
                    if let earlier { report(earlier, worsening: &status) }
                    continue
                }
                isInterrupted = ending.isInterrupted
                if ending.isLate, entry.rank != .complete {
                    late[application] = ending
                } else {
                    report(ending, worsening: &status)
                }
            }
            // Repeats runs whose share was too short, in the time that other applications did not need.
            order = HookOrder(order.entries.filter { late[$0.application] != nil })
        } while !isInterrupted && !late.isEmpty
            && timeLimit - (ContinuousClock.now - start) >= .seconds(1)
        for entry in order.entries {
            if let ending = late[entry.application] { report(ending, worsening: &status) }
        }
        return status
    }

    /// Prints the line of an ending, and replaces the status of the hook by a more severe one.
    private func report(_ ending: Ending, worsening status: inout ExitStatus) {
        if !output.quiet || ending.status != .success { Console.say(ending.line) }
        if ending.status.severity > status.severity { status = ending.status }
    }

    /// Prints the line at the start, before the first request to a server.
    private func announce(_ order: HookOrder) {
        // The others have a line of their own, which says why their registration cannot be used.
        let folders = sessions.folders
        let entries = order.entries.filter { entry in
            guard let id = entry.application else { return true }
            return (try? folders.registration(of: id)) != nil
        }
        let count = entries.count
        guard !output.quiet, count > 0 else { return }
        let packs =
            count == 1
            ? "essential packs" : "essential packs of \(count.quantity(of: "application"))"
        Console.say("stagepack: installing \(packs), within \(timeLimit.inWords)")
    }

    private func reportNoApplication() -> ExitStatus {
        Console.say("stagepack: no application is registered")
        return .manifestInvalid
    }

    /// One run for an application, or for the session that the options name.
    private struct Attempt {
        var application: ApplicationID?
        /// The application's share of the time that is left.
        var share: Duration
        /// Time limit of the wait for other processes that work on packs of the application; `nil` if there is none.
        var lockTimeLimit: Duration?
    }

    /// The longest wait for other processes in the first run for an application while other applications need the time.
    private static let lockTimeLimit = Duration.seconds(1)

    private struct Ending {
        var line: String
        var status: ExitStatus
        /// `true` if more time may complete the run.
        var isLate = false
        /// `true` if a signal has ended the run.
        var isInterrupted = false
        /// The packs that were staged.
        var staged = StagedSoFar()
    }

    /// The packs that a run and those before it have staged.
    private struct StagedSoFar {
        private(set) var packs: Set<PackID> = []
        /// The bytes that the runs received, also of packs that are not staged yet.
        private var received: [PackID: ByteCount] = [:]

        mutating func add(_ packs: [PackReport]) {
            self.packs.formUnion(packs.lazy.filter { $0.outcome == .staged }.map(\.id))
            for pack in packs { received[pack.id, default: .zero] += pack.transferred ?? .zero }
        }

        /// The bytes that the staged packs took, in parentheses; empty if there are none.
        var note: String {
            let size = packs.reduce(ByteCount.zero) { $0 + (received[$1] ?? .zero) }
            return size > .zero ? " (\(size))" : ""
        }
    }

    /// Returns the ending for an application that did not run because of a signal.
    private static func endingWithoutRun(_ application: ApplicationID?) -> Ending {
        Ending(
            line: line(for: application?.text ?? "packs", "nothing staged: interrupted"),
            status: .interrupted
        )
    }

    /// Returns a line for each file that is not used as a registration because of its name.
    private func misnamedFiles() -> [Ending] {
        guard sessions.isForAll else { return [] }
        return sessions.folders.misnamedFiles().map { file in
            Ending(
                line: Self.line(for: "registrations", "\(file)", isFinished: true),
                status: .manifestInvalid
            )
        }
    }

    /// Stages for one application; returns `nil` if it is no longer registered.
    ///
    /// `earlier` is the ending of the run that is repeated.
    private func run(_ attempt: Attempt, after earlier: Ending?) async -> Ending? {
        let session: Session
        do throws(CommandFailure) {
            guard let found = try sessions.session(of: attempt.application) else { return nil }
            session = found
        } catch {
            // No later run succeeds before the file of the registration is corrected.
            let text = error.message + (error.hint.map { "; \($0)" } ?? "")
            return Ending(
                line: Self.line(for: "registrations", text, isFinished: true),
                status: error.status
            )
        }
        if earlier == nil { warnOfHiddenRegistration(of: session.target) }
        return await run(session, in: attempt, after: earlier)
    }

    /// Prints a line if users cannot read a registration of the system: to their programs, the application is not
    /// registered.
    private func warnOfHiddenRegistration(of target: StagingTarget) {
        guard let path = target.registrationPath,
            let application = target.registration?.application,
            let command = RegistrationFolders.commandToShow(path)
        else { return }
        Console.say(
            "stagepack: \(application): users cannot read its registration: run '\(command)'"
        )
    }

    /// Creates the run of an attempt, which shows no progress and waits for no person.
    private func stagingRun(
        in attempt: Attempt,
        of session: Session,
        isRepetition: Bool
    ) throws(CommandFailure) -> StagingRun {
        var quiet = output
        quiet.quiet = true
        quiet.progress = .none
        var run = try StagingRun(
            .event(event, essentialOnly: true),
            session: session,
            output: quiet
        )
        run.request.isRepetition = isRepetition
        run.request.waitsWhilePaused = false
        run.request.options.lockTimeLimit = attempt.lockTimeLimit
        return run
    }

    private func run(
        _ session: Session,
        in attempt: Attempt,
        after earlier: Ending?
    ) async -> Ending {
        let staged = earlier?.staged ?? StagedSoFar()
        let name = session.target.registration?.application.text ?? "packs"
        let run = Result.catching { () throws(CommandFailure) in
            try stagingRun(in: attempt, of: session, isRepetition: earlier != nil)
        }
        let (result, interruption) = await withInterruption(after: attempt.share) {
            () async -> Result<StagingRuns, CommandFailure> in
            do throws(CommandFailure) {
                return .success(try await run.get().run())
            } catch {
                return .failure(error)
            }
        }
        switch result {
        case .failure(let failure):
            let isLate = interruption == .deadline
            let isCut = isLate && failure.status == .interrupted
            let message =
                isCut ? "the deadline passed before the manifest was downloaded" : failure.message
            let state =
                if !staged.packs.isEmpty {
                    "\(staged.packs.count) staged\(staged.note)"
                } else if session.target.hasEssentialPacks {
                    "essential packs are staged"
                } else {
                    "nothing staged"
                }
            // No periodic run knows a manifest or a container that only the options name.
            let isFinal = session.target.registration == nil && failure.retryAdvice == .never
            let hint = isFinal ? failure.hint.map { "; \($0)" } ?? "" : ""
            return Ending(
                line: Self.line(
                    for: name,
                    "\(state): \(message)\(hint)",
                    isFinished: isFinal
                ),
                status: isLate ? .unfinished : failure.status,
                isLate: isLate,
                isInterrupted: interruption == .signal,
                staged: staged
            )
        case .success(let runs):
            var ending = Self.ending(
                of: name,
                runs: runs,
                isLate: interruption == .deadline,
                hadLockTimeLimit: attempt.lockTimeLimit != nil,
                after: staged
            )
            ending.isInterrupted = interruption == .signal
            return ending
        }
    }

    private static func ending(
        of name: String,
        runs: StagingRuns,
        isLate: Bool,
        hadLockTimeLimit: Bool,
        after earlier: StagedSoFar
    ) -> Ending {
        let packs = runs.reports.flatMap(\.packs)
        let available = packs.count { $0.outcome == .staged || $0.outcome == .present }
        var staged = earlier
        staged.add(packs)
        var failures = runs.failures.map(FailureReport.init) + runs.reports.flatMap(\.failures)
        if failures.isEmpty { failures = runs.reports.compactMap(\.manifestProblem) }
        let waiting = packs.filter { $0.outcome == .waiting }
        let paused = waiting.first.map { ", \(waiting.count) waiting (\($0.textOfReason))" } ?? ""
        guard let failure = failures.mostSevere else {
            guard paused.isEmpty else {
                let text = "\(available) staged\(staged.note)\(paused)"
                return Ending(line: line(for: name, text), status: .unfinished, staged: staged)
            }
            let what =
                staged.packs.isEmpty
                ? "essential packs are staged" : "\(staged.packs.count) staged\(staged.note)"
            return Ending(line: line(for: name, what, isFinished: true), status: .success)
        }
        let count = packs.count { $0.outcome == .failed }
        let missing = count == 0 ? "" : ", \(count) missing"
        let isCut = isLate && failure.status == ExitStatus.interrupted.rawValue
        let message = isCut ? "the deadline passed" : failure.message
        let status = ExitStatus(rawValue: failure.status) ?? .unfinished
        // Severe failures, which no later run resolves, determine the status even after the deadline. A run that waited for
        // another process may succeed in the time that is left.
        let isUnfinished = isLate && status.severity < ExitStatus.digestMismatch.severity
        let waitsForOther =
            hadLockTimeLimit && failures.contains { $0.status == ExitStatus.inUse.rawValue }
        let canContinue = isUnfinished || isLate && status == .inUse || waitsForOther
        // No later run stages a pinned pack.
        let release = status == .pinned ? failure.hint : nil
        return Ending(
            line: line(
                for: name,
                "\(available) staged\(staged.note)\(paused)\(missing): \(message)"
                    + (release.map { "; \($0)" } ?? ""),
                isFinished: release != nil,
                transfers: runs.reports.compactMap(\.transfer)
            ),
            status: isUnfinished ? .unfinished : status,
            isLate: canContinue,
            staged: staged
        )
    }

    /// Returns the line of an application; `transfers` are the daemon's that continue its run.
    private static func line(
        for name: String,
        _ text: String,
        isFinished: Bool = false,
        transfers: [Int64] = []
    ) -> String {
        let next =
            transfers.isEmpty
            ? "the next periodic run retries"
            : "the daemon continues it as transfer "
                + transfers.map { "\($0)" }.joined(separator: " and ")
        return "stagepack: \(name): \(text)" + (isFinished ? "" : "; \(next)")
    }
}
