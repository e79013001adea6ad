import ArgumentParser
import Glibc
import StageArchive
import StageModel
import StageSystem
import SystemPackage

/// The child process that starts the decoders of archives; only this program starts it.
struct UnpackServiceCommand: ParsableCommand {
    static let name = "unpack-service"

    static let configuration = CommandConfiguration(
        commandName: name,
        abstract: "Unpack archives for a parent process.",
        shouldDisplay: false
    )

    /// The path of this program.
    static let executable: FilePath = "/proc/self/exe"
    /// The arguments that start the service.
    static let arguments = ["stagepack", name]

    /// Serves until the parent closes the socket, and exits; returns at once if the process was not started
    /// as the service.
    ///
    /// Must run before the asynchronous parser of commands, which starts threads: the service forks, and so
    /// must be single-threaded.
    static func runIfAsked() {
        guard CommandLine.arguments.dropFirst().elementsEqual([name]) else { return }
        Glibc.exit(UnpackService.run(ChildProcess.channel))
    }

    func run() throws {
        // Reached only with further arguments, which the service does not accept.
        throw ExitCode(ExitStatus.usage.rawValue)
    }
}
