import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StagingService

/// A run inside a hook of a package manager, which it must neither delay nor break.
///
/// Stages only essential packs. Prints a line at the start and one for each application, and leaves the rest
/// to the periodic run, which reads the history of the application. Starts no services and waits for nothing
/// beyond the deadline, so it works the same in a chroot, during an image build, with a `policy-rc.d`, and on
/// a machine without systemd.
struct HookRun: Sendable {
    let sessions: [Result<Session, CommandFailure>]
    let event: ContentRequest?
    /// Time limit for all applications together.
    let deadline: Duration
    let output: OutputOptions

    /// Returns the deadline from the option, the environment or the configuration file, or else 60 seconds.
    static func deadline(option: Double?, environment: [String: String]) -> Duration {
        let variable = environment["STAGEPACK_HOOK_DEADLINE"].flatMap(Double.init)
        let seconds = [option, variable].compactMap(\.self).first { $0 >= 0 && $0 <= 1e9 }
        if let seconds { return .seconds(seconds) }
        // A file that cannot be used fails the runs of the applications, each with its line.
        guard let deadline = try? SettingsFile.settings().hookDeadline else { return .seconds(60) }
        HookGuard.setDeadline(deadline)
        return deadline
    }

    /// Stages, prints a line at the start and one for each application, and returns the status of the first
    /// failure.
    func run() async -> ExitStatus {
        let start = ContinuousClock.now
        announce()
        var status = ExitStatus.success
        for session in sessions {
            let rest = max(.zero, deadline - (ContinuousClock.now - start))
            let ending = await run(session, within: rest)
            if !output.quiet || ending.status != .success { Console.say(ending.line) }
            if status == .success { status = ending.status }
            if ending.status == .interrupted { break }
        }
        return status
    }

    /// Prints the line at the start, before the first request to a server.
    private func announce() {
        guard !output.quiet, !sessions.isEmpty else { return }
        let packs =
            sessions.count == 1
            ? "essential packs" : "essential packs of \(sessions.count.quantity(of: "application"))"
        Console.say("stagepack: installing \(packs), within \(deadline.inWords)")
    }

    private typealias Ending = (line: String, status: ExitStatus)

    private func run(
        _ session: Result<Session, CommandFailure>,
        within rest: Duration
    ) async -> Ending {
        switch session {
        case .success(let session): await run(session, within: rest)
        case .failure(let error):
            // No later run can go on before the file is corrected.
            (
                Self.line(
                    for: "registrations",
                    error.message + (error.hint.map { "; \($0)" } ?? ""),
                    isFinished: true
                ), error.status
            )
        }
    }

    private func run(_ session: Session, within rest: Duration) async -> Ending {
        let name = session.target.registration?.application.text ?? "packs"
        var quiet = output
        quiet.quiet = true
        quiet.progress = .none
        let run = Result.catching { [quiet] () throws(CommandFailure) in
            try StagingRun(.event(event, essentialOnly: true), session: session, output: quiet)
        }
        let (result, interruption) = await withInterruption(after: rest) {
            () async -> Result<[StagingReport], CommandFailure> in
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
            let message = isCut ? "the deadline passed before the manifest came" : failure.message
            return (
                Self.line(for: name, "nothing staged: \(message)"),
                isLate ? .unfinished : failure.status
            )
        case .success(let reports):
            return Self.ending(of: name, reports: reports, isLate: interruption == .deadline)
        }
    }

    private static func ending(
        of name: String,
        reports: [StagingReport],
        isLate: Bool
    ) -> Ending {
        let packs = reports.flatMap(\.packs)
        let staged = packs.filter { $0.outcome == .staged }
        let here = staged.count + packs.count { $0.outcome == .present }
        var failures = reports.flatMap(\.failures)
        if failures.isEmpty { failures = reports.compactMap(\.manifestProblem) }
        let size = staged.reduce(ByteCount.zero) { $0 + ($1.transferred ?? .zero) }
        let transferred = size > .zero ? " (\(size))" : ""
        guard let failure = failures.first else {
            let what =
                staged.isEmpty ? "essential packs are here" : "\(staged.count) staged\(transferred)"
            return (line(for: name, what, isFinished: true), .success)
        }
        let count = packs.count { $0.outcome == .failed }
        let missing = count == 0 ? "" : ", \(count) missing"
        let isCut = isLate && failure.status == ExitStatus.interrupted.rawValue
        let message = isCut ? "the deadline passed" : failure.message
        let status = isLate ? ExitStatus.unfinished : ExitStatus(rawValue: failure.status)
        return (
            line(for: name, "\(here) here\(transferred)\(missing): \(message)"),
            status ?? .unfinished
        )
    }

    private static func line(for name: String, _ text: String, isFinished: Bool = false) -> String {
        let rest = isFinished ? "" : "; the next periodic run retries"
        return "stagepack: \(name): \(text)\(rest)"
    }
}
