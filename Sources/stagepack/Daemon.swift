import FoundationEssentials
import StageControl
import StagePack
import StageSystem

/// The daemon, as the commands that speak with it need it.
enum Daemon {
    /// Finds the daemon of this user, or the system's.
    static func client() async throws(CommandFailure) -> ControlClient {
        do throws(ControlError) {
            return try await ControlClient.discover(environment: ProcessEnvironment.current)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Asks, and says in this program's way what went wrong.
    static func ask<Value>(
        _ body: (ControlClient) async throws(ControlError) -> Value
    ) async throws(CommandFailure) -> Value {
        let client = try await client()
        do throws(ControlError) {
            return try await body(client)
        } catch {
            throw CommandFailure(error)
        }
    }
}

extension CommandFailure {
    /// What a failure to speak with the daemon means to the user.
    init(_ error: ControlError) {
        let (status, hint): (ExitStatus, String?) =
            switch error {
            case .notRunning:
                (.daemonUnavailable, "start it: 'systemctl start stagepackd', or 'stagepackd'")
            case .accessDenied: (.daemonRefused, "run it as the user whose daemon it is")
            case .lost(_, .some):
                (.daemonUnavailable, "start it again: 'systemctl restart stagepackd'")
            case .untrusted: (.daemonUnavailable, "end that process, or remove its socket")
            case .lost, .system: (.daemonUnavailable, "run it again; nothing is lost")
            case .refused, .pathTooLong, .malformed, .tooLarge: (.daemonRefused, nil)
            case .cancelled: (.interrupted, nil)
            }
        self.init(status: status, message: error.description, hint: hint, retry: .later)
    }
}
