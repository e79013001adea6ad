import ArgumentParser
import FoundationEssentials
import StageEngine
import StageModel
import StageSystem
import StagingService

struct PrefetchCommand: SourcedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "prefetch",
        abstract: "Stage the packs that their policies call for.",
        discussion: """
            In the hook of a package manager ('--hook', or when dpkg runs the maintainer script that \
            calls it) only essential packs are staged, within a deadline of 60 seconds, one line is \
            printed at the start and one for each application, and the status is always 0. The next \
            'stagepack prefetch --all --event periodic' stages packs that are still missing.
            """
    )

    @Flag(help: "Stage only the packs that are essential.")
    var essential = false

    @Flag(help: "Do it for every application that is registered.")
    var all = false

    @Option(
        help: ArgumentHelp(
            "The event: install, update or periodic. Without it: install until every pack "
                + "essential to it is staged, then update.",
            valueName: "event"
        )
    )
    var event: RequestArgument?

    @Option(
        help: ArgumentHelp(
            "The seconds after which to stop; in a hook 60, or STAGEPACK_HOOK_DEADLINE.",
            valueName: "seconds"
        )
    )
    var deadline: Seconds?

    @Flag(help: "Behave as a hook of a package manager.")
    var hook = false

    @Flag(help: "In a hook: end with the status of the most severe failure.")
    var strict = false

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }
    var messages: MessageOptions? { output.messages }

    mutating func validate() throws {
        if hook, output.json {
            throw ValidationError("--hook and --json exclude each other: a hook prints lines.")
        }
        if all, source.app != nil || !source.manifest.isEmpty || source.container != nil {
            throw ValidationError("--all excludes --app, --manifest and --container.")
        }
        if all, source.root != nil || source.applicationVersion != nil {
            throw ValidationError("--all excludes --root and --application-version.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let environment = ProcessEnvironment.current
        if hook || environment["DPKG_MAINTSCRIPT_NAME"] != nil {
            let run = HookRun(
                sessions: try sessions(),
                event: event?.request,
                deadline: HookRun.deadline(option: deadline?.value, environment: environment),
                output: output
            )
            let status = await run.run()
            return strict ? status : .success
        }
        let wanted = StagingRequest.Packs.event(event?.request, essentialOnly: essential)
        let sessions = try sessions()
        let output = output
        let body = { @Sendable () async throws(CommandFailure) in
            try await ApplicationRuns.run(sessions, packs: wanted, output: output)
        }
        return try await stage(output: output, within: deadline?.duration, perform: body) {
            runs in
            if output.json || !output.quiet {
                runs.print(Listing(elements: runs.reports, name: "runs"), asJSON: output.json)
            }
        }
    }

    /// Returns the session of the application that the options name, or the sessions of all.
    private func sessions() throws(CommandFailure) -> [Result<Session, CommandFailure>] {
        guard all else {
            return [
                Result.catching { () throws(CommandFailure) in try Session(source, network: network)
                }
            ]
        }
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let applications = try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.applications()
        }
        return applications.map { id in
            Result.catching { () throws(CommandFailure) in
                try Session(application: id, source: source, network: network)
            }
        }
    }
}

/// Runs of several applications, where a failure of one does not stop the others.
enum ApplicationRuns {
    /// Stages for each application in turn.
    ///
    /// - Returns: The reports, and the failures of applications whose runs failed as a whole; with a failure of
    ///   ``ExitStatus/interrupted`` if applications are left after the deadline or a signal, and no run failed.
    /// - Throws: The failure, if there is only one application and its run failed as a whole.
    static func run(
        _ sessions: [Result<Session, CommandFailure>],
        packs: StagingRequest.Packs,
        output: OutputOptions
    ) async throws(CommandFailure) -> StagingRuns {
        var all = StagingRuns()
        for (index, session) in sessions.enumerated() {
            do throws(CommandFailure) {
                let session = try session.get()
                let runs = try await session.hints.apply { () throws(CommandFailure) in
                    try await StagingRun(packs, session: session, output: output).run()
                }
                all.reports += runs.reports
                all.failures += runs.failures
                guard Task.isCancelled else { continue }
                // Reports with failures have a status of their own.
                let isComplete = all.failures.isEmpty && all.reports.allSatisfy(\.isComplete)
                if index + 1 < sessions.count, isComplete {
                    all.failures.append(CommandFailure(StageError.cancelled))
                }
                break
            } catch {
                if sessions.count == 1 { throw error }
                all.failures.append(error)
                // The deadline and signals end the runs of all applications.
                if error.status == .interrupted || Task.isCancelled { break }
            }
        }
        return all
    }
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
