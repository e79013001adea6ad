import ArgumentParser
import FoundationEssentials
import StageContainer
import StageModel

struct RollbackCommand: ChangingSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "rollback",
        abstract: "Switch packs back to the previous generation.",
        discussion: """
            Uses no network. The pack is pinned to the version it is switched to, so that no run \
            updates it, until 'pin --release'. A second rollback undoes the first one, and its \
            pin. An application that has the pack open keeps reading it.
            """
    )

    @Argument(
        help: "The packs.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var packs: [PackID]

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source)
        for id in packs { try session.checkOwnCopy(of: id, for: "rollback") }
        guard let container = try session.existingContainer() else { throw .notStaged(packs[0]) }
        var reports: [RollbackReport] = []
        var failure: CommandFailure?
        do throws(ContainerError) {
            let locks = try locks(in: container)
            for lock in locks {
                let now = Int64(Date().timeIntervalSince1970)
                let rollback = try container.rollBack(lock, now: now)
                reports.append(RollbackReport(of: lock.id, rollback: rollback))
            }
        } catch {
            failure = CommandFailure(error)
        }
        return try Console.conclude(
            change: reports,
            named: "packs",
            failure: failure,
            asJSON: json
        )
    }

    /// Acquires the locks on the packs, and checks that each of them has a previous generation: no pack is rolled back unless
    /// all can be, since a repeated rollback would undo the first one.
    private func locks(in container: Container) throws(ContainerError) -> [PackLock] {
        var locks: [PackLock] = []
        for id in packs where !locks.contains(where: { $0.id == id }) {
            guard let lock = try container.attemptLock(id) else { throw .busy(id) }
            try container.checkForRollback(lock)
            locks.append(lock)
        }
        return locks
    }
}

/// Output of `rollback` for one pack.
struct RollbackReport: Codable, CustomStringConvertible {
    var pack: PackID
    /// The version that was staged before.
    var from: Int?
    /// The version that is staged now.
    var version: Int?
    /// Set if the pack is now pinned to that version; not set if the command undid a rollback of a pack that was
    /// not pinned before.
    var isPinned: Bool

    init(of pack: PackID, rollback: Rollback) {
        self.pack = pack
        from = rollback.from.content?.version
        version = rollback.to.content?.version
        isPinned = rollback.pin != nil
    }

    var description: String {
        guard isPinned else {
            return "\(pack): rollback undone: version \(version ?? 0) is staged again, not pinned"
        }
        let undo = HintSource.current.local("rollback", pack.text)
        return "\(pack): rolled back from version \(from ?? 0) to \(version ?? 0) and pinned"
            + (undo.map { "; undo with \($0)" } ?? "")
    }
}
