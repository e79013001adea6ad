import Glibc
import StageModel
import StagePack
import StagingService

/// A failure as the user is told: what, where, and the one thing to do.
struct CommandFailure: Error, Equatable {
    /// What the command ends with.
    var status: ExitStatus
    /// What happened and where, as a fragment.
    var message: String
    /// The one thing to do, if there is one.
    var hint: String?
    /// When trying again makes sense.
    var retry: RetryAdvice
    /// The server that was waited for, if that is not in the message: a fragment.
    var place: String?
    /// The pack of the command line that is not staged or not offered; its identifier may be misspelt.
    var unknownPack: PackID?
}

extension CommandFailure {
    /// Ends the program before its command has begun; a hook tells the failure in one line.
    func endProgram(isHook: Bool) -> Never {
        if isHook {
            let parts = [message, hint, retry == .later ? "the next periodic run goes on" : nil]
            let text = parts.compactMap(\.self).joined(separator: "; ")
            Console.say("stagepack: hook: nothing staged: \(text)")
        } else {
            Console.report(self, asJSON: CommandLine.arguments.contains("--json"))
        }
        Glibc.exit(status.rawValue)
    }
}

/// A failure as `--json` prints it.
struct FailureReport: Codable, Equatable {
    /// What happened and where.
    var message: String
    /// The one thing to do, if there is one.
    var hint: String?
    /// When trying again makes sense.
    var retry: RetryAdvice
    /// The exit status that stands for the failure.
    var status: Int32

    init(_ failure: CommandFailure) {
        message = failure.message
        hint = failure.hint
        retry = failure.retry
        status = failure.status.rawValue
    }

    init(_ failure: StagingFailure) { self.init(CommandFailure(failure)) }
}
