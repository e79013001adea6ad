import ArgumentParser
import Glibc
import StageArchive
import StageSystem
import SystemPackage

/// The child process that makes those that decode archives; started by this program alone.
struct UnpackServiceCommand: ParsableCommand {
    static let name = "unpack-service"

    static let configuration = CommandConfiguration(
        commandName: name,
        abstract: "Unpack archives for a parent process.",
        shouldDisplay: false
    )

    /// This program.
    static let executable: FilePath = "/proc/self/exe"
    /// The arguments that it is started with.
    static let arguments = ["stagepack", name]

    /// Serves until the parent closes the socket and ends the process, if that is what it was started
    /// for.
    ///
    /// The parser of commands is asynchronous and starts threads, and a process that copies itself may have
    /// none but its first: the service comes before it.
    static func runIfAsked() {
        guard CommandLine.arguments.dropFirst().elementsEqual([name]) else { return }
        Glibc.exit(UnpackService.run(ChildProcess.channel))
    }

    func run() throws {
        // With further arguments, which the service does not have.
        throw ExitCode(ExitStatus.usage.rawValue)
    }
}
