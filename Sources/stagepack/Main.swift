import ArgumentParser
import Glibc
import StageDaemonCommand
import StageModel
import StagePack
import StageSystem

@main
struct StagePackCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stagepack",
        abstract: "Stages an application's asset packs before its first launch, and reads them.",
        discussion: """
            A manifest names an application's packs. 'prefetch' brings those that its policies call \
            for into a container, verified and published in one step; 'load' returns a pack's \
            directory and fetches it if need be.
            """,
        version: Version.text,
        subcommands: [
            VersionCommand.self, UnpackServiceCommand.self, StagingWorkerCommand.self,
        ],
        groupedSubcommands: [
            CommandGroup(
                name: "Staging",
                subcommands: [PrefetchCommand.self, FetchCommand.self, PlanCommand.self]
            ),
            CommandGroup(
                name: "Reading",
                subcommands: [
                    LoadCommand.self, PathCommand.self, ListCommand.self, InfoCommand.self,
                    StatusCommand.self, DiskUsageCommand.self,
                ]
            ),
            CommandGroup(
                name: "Upkeep",
                subcommands: [
                    VerifyCommand.self, RepairCommand.self, RollbackCommand.self,
                    PinCommand.self, RemoveCommand.self, CollectGarbageCommand.self,
                    DoctorCommand.self, WhyCommand.self, MetricsCommand.self,
                ]
            ),
            CommandGroup(
                name: "Transfers",
                subcommands: [
                    TasksCommand.self, WatchCommand.self, CancelCommand.self, PauseCommand.self,
                    ResumeCommand.self,
                ]
            ),
            CommandGroup(
                name: "Packaging",
                subcommands: [AppCommand.self, SimulateCommand.self]
            ),
            CommandGroup(
                name: "Publishing",
                subcommands: [
                    PackageCommand.self, DeltaCommand.self,
                    DiffCommand.self, TemplateCommand.self, ManifestCommand.self,
                    StoreCommand.self, ServeCommand.self,
                ]
            ),
            CommandGroup(
                name: "Signing",
                subcommands: [
                    KeysCommand.self, SignCommand.self, RefreshCommand.self, RotateCommand.self,
                ]
            ),
        ]
    )

    static func main() async {
        if DaemonCommand.isInvokedAsDaemon { return await DaemonCommand.main() }
        StandardStreams.openMissing()
        // In a hook, the rest runs in a child process, whose crash the caller of the hook does not see.
        let isHook = HookGuard.enter(SystemShortage.hookWords)
        ProcessEnvironment.clean()
        // Runs before the first 'await', which starts threads.
        UnpackServiceCommand.runIfAsked()
        // A closed pipe on standard output must not end a transfer.
        signal(SIGPIPE, SIG_IGN)
        HeapMemory.limitArenas()
        SystemShortage.endIfAny(isHook: isHook)
        // Runs before the first 'await': threads inherit the confinement of the thread that starts them.
        if let worker = StagingWorker.startIfAsked() {
            Glibc.exit(await worker.run().rawValue)
        }
        endIfNotText(isHook: isHook)
        await run(Array(CommandLine.arguments.dropFirst()))
    }

    /// Runs the command that the arguments name.
    private static func run(_ arguments: [String]) async {
        CommandLineFault(helpAbout: arguments)?.endProgram()
        CommandLineFault(versionAmong: arguments)?.endProgram()
        do {
            var command = try await asyncParseAsRoot(arguments)
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch {
            if let fault = CommandLineFault(error, of: arguments) { fault.endProgram() }
            if arguments.first?.hasPrefix("--generate-completion-script") ?? false,
                exitCode(for: error).isSuccess
            {
                let script = CompletionScript(generated: fullMessage(for: error))
                endProgram(printing: script.text)
            }
            // Help and the version. The parser would ignore that standard output cannot be written.
            if !(error is ExitCode), exitCode(for: error).isSuccess {
                endProgram(printing: fullMessage(for: error) + "\n")
            }
            exit(withError: error)
        }
    }

    /// Prints text to standard output, and exits with the status for that.
    private static func endProgram(printing text: String) -> Never {
        Console.write(text, to: STDOUT_FILENO)
        Glibc.exit(Console.status(after: .success).rawValue)
    }

    /// Exits if the arguments or variables with paths are not UTF-8, since they would name other files than
    /// intended.
    private static func endIfNotText(isHook: Bool) {
        guard let fault = CommandLineEncoding.fault() else { return }
        let failure = CommandFailure(
            status: .usage,
            message: "\(fault)".forDisplay(),
            hint: fault.hint,
            retryAdvice: .never
        )
        failure.endProgram(isHook: isHook)
    }
}
