import ArgumentParser
import StageControl
import StageModel
import StagePack
import StageSystem

/// The transfers that a command changes.
struct TaskSelection: ParsableArguments {
    @Argument(help: "The numbers of transfers.") var tasks: [Int64] = []

    @Option(help: ArgumentHelp("All transfers of this session.", valueName: "identifier"))
    var session: String?

    @Flag(help: "All unfinished transfers; for root, of all users.")
    var all = false

    func validate() throws {
        guard [!tasks.isEmpty, session != nil, all].count(where: \.self) == 1 else {
            throw ValidationError(
                "name transfers by their numbers, a session by --session, or --all"
            )
        }
    }

    /// The maximum number of listings of transfers: a client may create new ones without end.
    private static let listings = 16

    /// Changes the transfers, and prints their new state.
    ///
    /// A transfer of a session, or of all, that ends meanwhile is left out, and those that are created meanwhile
    /// are changed too. If a transfer cannot be changed, the others still are.
    ///
    /// - Returns: The status of the first failure, else success.
    /// - Throws: ``CommandFailure`` if no transfer was changed because of a single failure.
    func change(
        to state: TransferChange.State,
        asJSON: Bool
    ) async throws(CommandFailure) -> ExitStatus {
        let client = try await Daemon.client()
        var changes = TaskChanges(client: client, state: state)
        if !tasks.isEmpty {
            await changes.add(tasks, skipsEnded: false)
        } else {
            for _ in 1...Self.listings {
                guard let new = await unfinished(after: &changes), !new.isEmpty else { break }
                await changes.add(new, skipsEnded: true)
            }
        }
        let failures = changes.failures.map { error in
            var failure = CommandFailure(error)
            // A transfer that has ended cannot be changed later either.
            if error.isOfEndedTask { failure.retryAdvice = .never }
            return failure
        }
        return try Console.conclude(
            change: changes.changed.map { TaskReport(task: $0) },
            named: "tasks",
            failures: failures,
            asJSON: asJSON
        )
    }

    /// Returns the unfinished transfers of the session, or of all, that were not tried yet; `nil` if the daemon
    /// does not list them.
    private func unfinished(after changes: inout TaskChanges) async -> [Int64]? {
        do throws(ControlError) {
            let isRoot = UserIdentity.current.user == 0
            let found =
                if let session {
                    try await changes.client.tasks(in: session)
                } else {
                    try await changes.client.tasks(all: isRoot)
                }
            return found.filter { !$0.hasEnded }.map(\.id).filter { !changes.tried.contains($0) }
        } catch {
            changes.add(error)
            return nil
        }
    }
}

/// The transfers that a command has changed.
private struct TaskChanges {
    let client: ControlClient
    let state: TransferChange.State
    /// The numbers of the transfers that were to be changed.
    private(set) var tried: Set<Int64> = []
    /// The new states.
    private(set) var changed: [TransferTask] = []
    /// The failures in their order, each once: a full disk may prevent the change of every transfer.
    private(set) var failures: [ControlError] = []

    init(client: ControlClient, state: TransferChange.State) {
        self.client = client
        self.state = state
    }

    /// Adds a failure, unless there is an equal one.
    mutating func add(_ failure: ControlError) {
        guard !failures.contains(failure) else { return }
        failures.append(failure)
    }

    /// Changes transfers; ends early only if the daemon does not answer.
    mutating func add(_ numbers: [Int64], skipsEnded: Bool) async {
        var change = TransferChange()
        change.state = state
        for number in numbers where tried.insert(number).inserted {
            do throws(ControlError) {
                let task = try await client.change(number, by: change)
                guard state == .cancelled, task.hasEnded, task.state != .cancelled else {
                    changed.append(task)
                    continue
                }
                // The daemon answers without an error, and has changed nothing.
                if skipsEnded { continue }
                let refusal = ControlRefusal(
                    .conflict,
                    message: "task \(number) has \(task.state.rawValue)"
                )
                add(.refused(refusal))
            } catch {
                if skipsEnded, error.isOfEndedTask { continue }
                add(error)
                guard case .refused = error else { return }
            }
        }
    }
}

extension ControlError {
    /// True if the daemon refused to change a task because it has ended, or is forgotten.
    fileprivate var isOfEndedTask: Bool {
        guard case .refused(let refusal) = self else { return false }
        return [.conflict, .notFound].contains(refusal.code)
    }
}
