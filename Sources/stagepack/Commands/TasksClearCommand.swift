import ArgumentParser
import StageControl
import StageModel

struct TasksClearCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "clear",
        abstract: "Remove downloads of 'tasks add' that have ended from the list.",
        discussion: """
            Until then they count for the limits of their user. Downloads whose files were not taken \
            away stay, with those that ended beside them; with '--files' all go, and their files. \
            Transfers of applications are left alone.
            """
    )

    @Flag(help: "Remove files too that were not taken away.") var files = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let removesFiles = files
        let (removed, kept) = try await Daemon.ask { client throws(ControlError) in
            var (removed, kept): ([TaskReport], [TaskReport]) = ([], [])
            for session in try await client.sessions() where Self.isOfCommand(session) {
                let ended = try await Self.endedTasks(of: session, from: client)
                let files = ended.filter { $0.location != nil }
                guard files.isEmpty || removesFiles else {
                    kept += files
                    continue
                }
                guard !ended.isEmpty else { continue }
                let all = Acknowledgement(sequence: session.lastEvent)
                try await client.acknowledge(all, in: session.identifier)
                removed += ended
            }
            return (removed, kept)
        }
        if !kept.isEmpty {
            let numbers = kept.map { "\($0.task.id)" }.joined(separator: ", ")
            Console.note(
                "\(kept.count.quantity(of: "file")) not taken away: \(numbers); move what is needed, and use '--files'"
            )
        } else if removed.isEmpty, !json {
            Console.note("no download has ended")
        }
        Console.print(change: Listing(elements: removed, name: "tasks"), asJSON: json)
        return .success
    }

    /// Returns whether `tasks add` of this user has made a session.
    private static func isOfCommand(_ session: SessionStatus) -> Bool {
        let name = TasksAddCommand.session
        return session.identifier == name || session.identifier.hasPrefix("\(name).")
    }

    /// Returns the tasks of a session that have ended by its last event.
    ///
    /// The session's status is older than the list: a task that ends meanwhile has a later event, which is not acknowledged.
    private static func endedTasks(
        of session: SessionStatus,
        from client: ControlClient
    ) async throws(ControlError) -> [TaskReport] {
        try await client.tasks(in: session.identifier).filter(\.hasEnded)
            .map { TaskReport($0, in: client.downloads) }
    }
}
