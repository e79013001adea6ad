import FoundationEssentials
import StageControl
import StageModel
import StagePack
import StageSystem

/// Access to the daemon for commands.
enum Daemon {
    /// Finds the user's daemon, or the system's.
    static func client() async throws(CommandFailure) -> ControlClient {
        do throws(ControlError) {
            return try await ControlClient.discover(environment: ProcessEnvironment.current)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Calls `body` with a connection to the daemon, and converts its errors; `quotaHint` is for a user who has reached a
    /// limit.
    static func ask<Value>(
        quotaHint: String? = nil,
        _ body: (ControlClient) async throws(ControlError) -> Value
    ) async throws(CommandFailure) -> Value {
        let client = try await client()
        do throws(ControlError) {
            return try await body(client)
        } catch {
            throw CommandFailure(error, quotaHint: quotaHint)
        }
    }
}

extension CommandFailure {
    /// Creates the failure for an error of the connection to the daemon, with a hint for a user who has reached a limit.
    init(_ error: ControlError, quotaHint: String? = nil) {
        let (status, hint): (ExitStatus, String?) =
            switch error {
            case .notRunning:
                (.daemonUnavailable, "start it: 'systemctl start stagepackd', or 'stagepackd'")
            case .accessDenied(let path):
                (
                    .daemonRefused,
                    "run it as the user whose daemon it is: \(Self.command("stat --format=%U", on: path)) "
                        + "names that user"
                )
            case .lost(_, .some):
                (.daemonUnavailable, "start it again: 'systemctl restart stagepackd'")
            case .untrusted(let path, _):
                (
                    .daemonUnavailable,
                    "end that process, which \(Self.command("fuser --verbose", on: path)) names, or remove "
                        + "its socket: \(Self.command("rm", on: path))"
                )
            case .lost, .system: (.daemonUnavailable, "run it again; nothing is lost")
            case .refused(let refusal) where refusal.code == .quota: (.daemonRefused, quotaHint)
            case .refused, .pathTooLong, .malformed, .tooLarge: (.daemonRefused, nil)
            case .cancelled: (.interrupted, nil)
            }
        self.init(status: status, message: error.description, hint: hint, retryAdvice: .later)
    }

    /// Returns a command with the path of a socket between quotation marks.
    private static func command(_ command: String, on path: String) -> String {
        let text = "\(command) \(quoted(path))"
        return text.contains("'") ? "\"\(text)\"" : "'\(text)'"
    }
}
