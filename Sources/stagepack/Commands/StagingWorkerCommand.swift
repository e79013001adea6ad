import ArgumentParser
import StageModel

/// The process that stages packs for a user; only the daemon starts it.
struct StagingWorkerCommand: ParsableCommand {
    static let name = "staging-worker"

    static let configuration = CommandConfiguration(
        commandName: name,
        abstract: "Stage packs for the daemon.",
        shouldDisplay: false
    )

    func run() throws {
        // Reached only with further arguments, which a worker does not accept.
        throw ExitCode(ExitStatus.usage.rawValue)
    }
}
