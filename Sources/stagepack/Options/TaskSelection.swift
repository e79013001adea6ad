import ArgumentParser
import StageControl
import StageSystem

/// The transfers that a command changes.
struct TaskSelection: ParsableArguments {
    @Argument(help: "The numbers of transfers.") var tasks: [Int64] = []

    @Option(help: ArgumentHelp("All transfers of this session.", valueName: "identifier"))
    var session: String?

    @Flag(help: "All transfers that have not ended; the superuser's are those of all users.")
    var all = false

    func validate() throws {
        guard [!tasks.isEmpty, session != nil, all].count(where: \.self) == 1 else {
            throw ValidationError(
                "name transfers by their numbers, a session by --session, or --all"
            )
        }
    }

    /// Changes the transfers, and prints their new state.
    func change(
        to state: TransferChange.State,
        asJSON: Bool
    ) async throws(CommandFailure) {
        let (numbers, session, all) = (tasks, session, all)
        let changed = try await Daemon.ask { client throws(ControlError) in
            var numbers = numbers
            if all {
                let tasks = try await client.tasks(all: UserIdentity.current.user == 0)
                numbers = tasks.filter { !$0.hasEnded }.map(\.id)
            } else if let session {
                let tasks = try await client.tasks(in: session)
                numbers = tasks.filter { !$0.hasEnded }.map(\.id)
            }
            var change = TransferChange()
            change.state = state
            var changed: [TransferTask] = []
            for number in numbers { changed.append(try await client.change(number, by: change)) }
            return changed
        }
        Console.print(
            Listing(elements: changed.map { TaskReport(task: $0) }, name: "tasks"),
            asJSON: asJSON
        )
    }
}

extension TransferTask {
    /// True if the task has completed, failed or been cancelled.
    var hasEnded: Bool { [.completed, .failed, .cancelled].contains(state) }
}
