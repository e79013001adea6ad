import ArgumentParser
import StageControl

struct TasksCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "tasks",
        abstract: "List the daemon's transfers, with what each of them waits for."
    )

    @Argument(help: "The numbers of transfers; without any, all.") var tasks: [Int64] = []
    @Flag(help: "Those of all users, for the superuser.") var all = false
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let (numbers, all) = (tasks, all)
        let found = try await Daemon.ask { client throws(ControlError) in
            guard !numbers.isEmpty else { return try await client.tasks(all: all) }
            var found: [TransferTask] = []
            for number in numbers { found.append(try await client.task(number)) }
            return found
        }
        if found.isEmpty, !json { Console.note("there are no transfers") }
        Console.print(Listing(elements: found.map(TaskReport.init), name: "tasks"), asJSON: json)
        return .success
    }
}
