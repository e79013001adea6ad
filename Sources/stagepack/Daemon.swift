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

extension Daemon {
    /// The longest absence of the daemon that a waiting command bridges, such as its restart by an upgrade of the package.
    private static let longestAbsence = Duration.seconds(30)
    /// The duration of a connection after which its loss begins another absence.
    private static let stableTime = Duration.seconds(10)

    /// Calls `body` with a connection to the daemon, and again with a new one after each loss of the connection.
    ///
    /// The new connection is to the same daemon, and not to the system's where that of the user ended.
    ///
    /// - Throws: The error of `body`, or of the last attempt to connect when the daemon was away for ``longestAbsence``.
    static func reconnecting<Value>(
        from first: ControlClient,
        _ body: (ControlClient) async throws(ControlError) -> Value
    ) async throws(ControlError) -> Value {
        var client = first
        var deadline: SuspendingClock.Instant?
        while true {
            let began = SuspendingClock.now
            do throws(ControlError) {
                return try await body(client)
            } catch {
                guard !Task.isCancelled else { throw .cancelled }
                guard error.isAbsence else { throw error }
                let now = SuspendingClock.now
                if now - began >= stableTime { deadline = nil }
                let end = deadline ?? now + longestAbsence
                deadline = end
                client = try await find(client.path, after: error, until: end)
            }
        }
    }

    /// Waits until the daemon at a path answers again; throws the last error at the deadline.
    private static func find(
        _ path: String,
        after loss: ControlError,
        until deadline: SuspendingClock.Instant
    ) async throws(ControlError) -> ControlClient {
        var problem = loss
        var backoff = Backoff(longest: .seconds(1), stableTime: stableTime)
        while SuspendingClock.now < deadline {
            // Cancelled: the command was interrupted.
            guard (try? await Task.sleep(for: backoff.next())) != nil else { throw .cancelled }
            do throws(ControlError) {
                let environment = ProcessEnvironment.current
                let client = try await ControlClient.discover(environment: environment)
                if client.path == path { return client }
                problem = .notRunning([path])
            } catch {
                guard error.isAbsence else { throw error }
                problem = error
            }
        }
        throw problem
    }
}

extension ControlError {
    /// True if the daemon ended or does not answer.
    fileprivate var isAbsence: Bool {
        switch self {
        case .notRunning, .lost: true
        case .accessDenied, .untrusted, .pathTooLong, .refused, .malformed, .tooLarge, .cancelled,
            .system:
            false
        }
    }
}

extension ControlError {
    /// True if the daemon refuses the request at any time.
    fileprivate var isFinal: Bool {
        guard case .refused(let refusal) = self else { return false }
        return switch refusal.code {
        case .malformed, .invalid, .forbidden, .notFound, .tooLarge: true
        case .conflict, .quota, .storage, .unavailable: false
        }
    }
}

extension CommandFailure {
    /// Creates the failure for an error of the connection to the daemon, with a hint for a user who has reached a limit.
    init(_ error: ControlError, quotaHint: String? = nil) {
        let (status, hint): (ExitStatus, String?) =
            switch error {
            case .notRunning where ProcessEnvironment.current["STAGEPACK_SOCKET"]?.isEmpty == true:
                (
                    .daemonUnavailable,
                    "run 'unset STAGEPACK_SOCKET': its empty value disables the daemon"
                )
            case .notRunning(let sockets):
                (
                    .daemonUnavailable,
                    DaemonStart(sockets: sockets, environment: ProcessEnvironment.current).hint
                )
            case .accessDenied(let path):
                (
                    .daemonRefused,
                    "run it as the user whose daemon it is: \(Self.command("stat --format=%U", on: path)) "
                        + "names that user"
                )
            case .lost(ControlSocket.system, .some) where UserIdentity.current.user != 0:
                (.daemonUnavailable, "as root, run 'systemctl restart stagepackd'")
            case .lost(_, .some):
                (.daemonUnavailable, "start it again: '\(Self.serviceCommand("restart"))'")
            case .untrusted(let path, _):
                (
                    .daemonUnavailable,
                    "end that process, which \(Self.command("fuser --verbose", on: path)) names, or remove "
                        + "its socket: \(Self.command("rm", on: path))"
                )
            case .lost, .system: (.daemonUnavailable, "run it again; nothing is lost")
            case .refused(let refusal):
                (.daemonRefused, refusal.code == .quota ? quotaHint : Self.hint(for: refusal.code))
            case .pathTooLong, .malformed, .tooLarge: (.daemonRefused, nil)
            case .cancelled: (.interrupted, nil)
            }
        self.init(
            status: status,
            message: error.description,
            hint: hint,
            retryAdvice: error.isFinal ? .never : .later
        )
    }

    /// Returns the hint for a request that the daemon refuses; `nil` if its message says everything.
    private static func hint(for code: ControlRefusal.Code) -> String? {
        switch code {
        case .notFound:
            let option = UserIdentity.current.user == 0 ? " --all" : ""
            return "run 'stagepack tasks\(option)' to see transfers and their sessions"
        case .forbidden where CommandLine.arguments.contains("--all"):
            return HintSource.thisCommand(without: ["--all"])
                .map { "run it as root, or run \($0) for the transfers of this user" }
        default: return nil
        }
    }

    /// Returns the command for the daemon of this user, which is that of the system for root.
    private static func serviceCommand(_ verb: String) -> String {
        let manager = UserIdentity.current.user == 0 ? "systemctl" : "systemctl --user"
        return "\(manager) \(verb) stagepackd"
    }

    /// Returns a command with the path of a socket between quotation marks.
    private static func command(_ command: String, on path: String) -> String {
        let text = "\(command) \(quoted(path))"
        return text.contains("'") ? "\"\(text)\"" : "'\(text)'"
    }
}
