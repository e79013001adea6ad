import ArgumentParser

/// The process by which the daemon has packs staged for a user; started by the daemon alone.
struct StagingWorkerCommand: ParsableCommand {
    static let name = "staging-worker"

    static let configuration = CommandConfiguration(
        commandName: name,
        abstract: "Stage packs for the daemon.",
        shouldDisplay: false
    )

    func run() throws {
        // With further arguments, which a worker does not have.
        throw ExitCode(ExitStatus.usage.rawValue)
    }
}
