import ArgumentParser
import StageControl
import StageModel
import StagePack
import StageSystem

struct TasksClearCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "clear",
        abstract: "Remove downloads of 'tasks add' that have ended from the list.",
        discussion: """
            Until then they count for the limits of their user. While a file of a session has not been moved away, \
            all downloads of that session stay; '--files' removes them and their files. \
            Transfers of applications are left alone.
            """
    )

    @Flag(help: "Also remove files that were not moved away.") var files = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let removesFiles = files
        let (removed, kept, error) = try await Daemon.ask { client throws(ControlError) in
            var (removed, kept): ([TaskReport], [TaskReport]) = ([], [])
            var failure: ControlError?
            for session in try await client.sessions() where Self.isOfCommand(session) {
                do throws(ControlError) {
                    let ended = try await Self.endedTasks(of: session, from: client)
                    let files = ended.filter { Self.mayHaveFile($0, in: client.downloads) }
                    guard files.isEmpty || removesFiles else {
                        kept += files
                        continue
                    }
                    guard !ended.isEmpty else { continue }
                    let all = Acknowledgement(sequence: session.lastEvent)
                    try await client.acknowledge(all, in: session.identifier)
                    // A task that has ended since then stays.
                    let left = Set(try await client.tasks(in: session.identifier).map(\.id))
                    removed += ended.filter { !left.contains($0.task.id) }
                } catch {
                    // The command of the session may have just removed it.
                    if case .refused(let refusal) = error, refusal.code == .notFound { continue }
                    failure = failure ?? error
                    guard case .refused = error else { break }
                }
            }
            return (removed, kept, failure)
        }
        let failure = error.map { CommandFailure($0) }
        let status = try Console.conclude(
            change: removed,
            named: "tasks",
            failure: failure,
            asJSON: json
        )
        if !kept.isEmpty {
            let numbers = kept.map { "\($0.task.id)" }.joined(separator: ", ")
            Console.note(
                "\(kept.count.quantity(of: "transfer")) with a file that was not moved away: \(numbers); "
                    + "move what is needed, then run 'stagepack tasks clear --files'"
            )
        } else if removed.isEmpty, !json {
            Console.note("no download has ended")
        }
        return status
    }

    /// Returns whether `tasks add` of this user has made a session, and no command waits for a download of it.
    private static func isOfCommand(_ session: SessionStatus) -> Bool {
        let name = TasksAddCommand.session
        return !session.isAttached
            && (session.identifier == name || session.identifier.hasPrefix("\(name)."))
    }

    /// Returns whether a download may have a file that was not moved away: also if this process cannot see the daemon's directory.
    private static func mayHaveFile(_ report: TaskReport, in downloads: DownloadDirectory?) -> Bool
    {
        guard report.task.state == .completed else { return false }
        let isVisible = downloads.map { FileStatus.exists($0.path) } ?? false
        return !isVisible || report.location != nil
    }

    /// Returns the tasks of a session that have ended.
    ///
    /// The session's status is older than the list: a task that ended since has a later event, which is not acknowledged.
    private static func endedTasks(
        of session: SessionStatus,
        from client: ControlClient
    ) async throws(ControlError) -> [TaskReport] {
        try await client.tasks(in: session.identifier).filter(\.hasEnded)
            .map { TaskReport($0, in: client.downloads) }
    }
}
