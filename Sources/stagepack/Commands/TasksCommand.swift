import ArgumentParser
import StageControl
import StageModel
import StageSystem

struct TasksCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tasks",
        abstract: "List the daemon's transfers, add downloads, and clear ended ones.",
        subcommands: [TasksListCommand.self, TasksAddCommand.self, TasksClearCommand.self],
        defaultSubcommand: TasksListCommand.self
    )
}

struct TasksListCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "List the daemon's transfers, with what each of them waits for.",
        discussion: "'stagepack tasks' is the same."
    )

    @Argument(help: "The numbers of transfers. Default: all.") var tasks: [Int64] = []
    @Flag(help: "As root: list the transfers of all users.") var all = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let (numbers, all) = (tasks, all)
        let found = try await Daemon.ask { client throws(ControlError) in
            var found: [TransferTask] = []
            if numbers.isEmpty { found = try await client.tasks(all: all) }
            for number in numbers { found.append(try await client.task(number)) }
            return found.map { TaskReport($0, in: client.downloads) }
        }
        if found.isEmpty, !json {
            Console.note(
                all || UserIdentity.current.user != 0
                    ? "there are no transfers"
                    : "root has no transfers; 'stagepack tasks --all' lists those of all users"
            )
        }
        Console.print(Listing(elements: found, name: "tasks"), asJSON: json)
        return .success
    }
}
