import Glibc
import StageModel
import StagePack
import StagingService

/// A failure in the form that the command line reports: what failed, where, and the recommended action.
struct CommandFailure: Error, Equatable {
    /// The exit status of the command.
    var status: ExitStatus
    /// The failed action or unmet condition, and the file, server or pack concerned; a fragment.
    var message: String
    /// The recommended action, if there is one.
    var hint: String?
    /// The condition under which another attempt can succeed.
    var retryAdvice: RetryAdvice
    /// The manifest that the command waited for, as a fragment, if the message does not name it.
    var requestedManifest: String?
    /// The pack of the command line that is not staged or not offered; its identifier may be misspelt.
    var unknownPack: PackID?
}

extension CommandFailure {
    /// Exits before the command has begun; in a hook, prints the failure in one line.
    func endProgram(isHook: Bool) -> Never {
        if isHook {
            let parts = [
                message, hint, retryAdvice == .later ? "the next periodic run retries" : nil,
            ]
            let text = parts.compactMap(\.self).joined(separator: "; ")
            Console.say("stagepack: hook: nothing staged: \(text)")
        } else {
            let arguments = Array(CommandLine.arguments.dropFirst())
            Console.report(
                self,
                asJSON: arguments.contains("--json"),
                onOneLine: CommandLineFault.printsJSONLines(arguments)
            )
        }
        Glibc.exit(status.rawValue)
    }
}

/// A failure as `--json` prints it.
struct FailureReport: Codable, Equatable {
    /// The failed action or unmet condition, and the file, server or pack concerned.
    var message: String
    /// The recommended action, if there is one.
    var hint: String?
    /// The condition under which another attempt can succeed.
    var retry: RetryAdvice
    /// The exit status for the failure.
    var status: Int32
    /// The number of the daemon's transfer that continues the command; `nil` if none does.
    var transfer: Int64?

    init(_ failure: CommandFailure) {
        message = failure.message
        hint = failure.hint
        retry = failure.retryAdvice
        status = failure.status.rawValue
    }

    init(_ failure: StagingFailure) { self.init(CommandFailure(failure)) }
}
