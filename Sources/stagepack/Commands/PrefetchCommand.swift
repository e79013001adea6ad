import ArgumentParser
import FoundationEssentials
import StageEngine
import StageModel
import StageSystem
import StagingService

struct PrefetchCommand: NetworkedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "prefetch",
        abstract: "Stage the packs that their policies call for.",
        discussion: """
            In the hook of a package manager ('--hook', or when dpkg runs the maintainer script that \
            calls it) only essential packs are staged, within a deadline of 60 seconds, one line is \
            printed at the start and one for each application, and the status is always 0. The next \
            'stagepack prefetch --all --event periodic' stages packs that are still missing. \
            Where dpkg changes another root from outside (DPKG_ROOT), nothing is staged without \
            '--container'.
            """
    )

    @Flag(help: "Stage essential packs only.")
    var essential = false

    @Flag(help: "Stage the packs of all registered applications.")
    var all = false

    @Option(
        help: ArgumentHelp(
            "The event: install, update or periodic. Default: install until every pack "
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
            throw ValidationError("--hook and --json cannot be combined: a hook prints lines.")
        }
        if isHook, output.json {
            throw ValidationError(
                "--json excludes a maintainer script of dpkg, in which this command is a hook and prints lines."
            )
        }
        if all, source.app != nil || !source.manifest.isEmpty || source.container != nil {
            throw ValidationError("--all excludes --app, --manifest and --container.")
        }
        if all, source.root != nil || source.applicationVersion != nil {
            throw ValidationError("--all excludes --root and --application-version.")
        }
    }

    /// `true` in the hook of a package manager, or in a maintainer script of dpkg.
    private var isHook: Bool { hook || MaintainerScript.isRunning }

    func perform() async throws(CommandFailure) -> ExitStatus {
        if isHook, let dpkgRoot = source.dpkgRoot {
            if !output.quiet {
                Console.say(
                    "stagepack: nothing staged: dpkg changes the root '\(dpkgRoot.forDisplay())'; "
                        + "the first periodic run there stages its packs"
                )
            }
            return .success
        }
        let environment = ProcessEnvironment.current
        let network = isHook ? network.forHook : network
        let sessions = ApplicationSessions(source: source, network: network, isForAll: all)
        if isHook {
            let timeLimit = HookRun.timeLimit(option: deadline?.value, environment: environment)
            HookGuard.setDeadline(timeLimit)
            let run = HookRun(
                sessions: sessions,
                event: event?.request,
                timeLimit: timeLimit,
                output: output
            )
            let status = try await run.run(isStrict: strict)
            return strict ? status : .success
        }
        let wanted = StagingRequest.Packs.event(event?.request, essentialOnly: essential)
        if all {
            for file in sessions.folders.misnamedFiles() {
                Console.note("stagepack: warning: \(file)")
            }
        }
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
}
