import ArgumentParser
import StageArchive
import StageSystem

/// The child process that decodes archives; started by this program alone.
struct UnpackServiceCommand: ParsableCommand {
    static let name = "unpack-service"

    static let configuration = CommandConfiguration(
        commandName: name,
        abstract: "Unpack archives for a parent process.",
        shouldDisplay: false
    )

    func run() throws {
        throw ExitCode(UnpackService.run(ChildProcess.channel))
    }
}
