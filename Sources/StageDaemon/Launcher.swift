import Foundation
import Logging
import StageControl
import StageSystem
import Subprocess
import Synchronization
import SystemPackage

/// Starts the handlers of sessions: as the session's user, in a process group and session of their own,
/// without what is the daemon's.
struct Launcher: Sendable {
    let socket: String
    let logger: Logger

    /// Starts a handler and waits for its end: 10 seconds after it was asked to end it is killed, with
    /// its process group.
    func run(_ launch: Launch) async {
        await launch.run { [self] in
            do {
                let status = try await start(launch)
                logger.info(
                    "A handler has ended",
                    metadata: [
                        "session.identifier": "\(launch.identifier)",
                        "handler.status": "\(status)",
                    ]
                )
            } catch {
                logger.error(
                    "A handler could not be started",
                    metadata: [
                        "session.identifier": "\(launch.identifier)", "error": "\(error)",
                    ]
                )
            }
        }
    }

    private func start(_ launch: Launch) async throws -> TerminationStatus {
        let command = launch.handler.command
        var options = PlatformOptions()
        options.createSession = true
        options.teardownSequence = [
            .gracefulShutDown(
                toProcessGroup: true,
                allowedDurationToNextStep: .seconds(10)
            )
        ]
        let account = Account(user: launch.user)
        if launch.user != UserIdentity.current.user {
            let identity = UserIdentity(
                user: launch.user,
                group: account?.group ?? launch.user
            )
            options.userID = uid_t(identity.user)
            options.groupID = gid_t(identity.group)
            options.supplementaryGroups = identity.groups.map { gid_t($0) }
        }
        let process = Mutex<pid_t?>(nil)
        defer {
            // It was to end: so is what it has started and not waited for.
            if Task.isCancelled, let group = process.withLock({ $0 }) { kill(-group, SIGKILL) }
        }
        return try await Subprocess.run(
            .path(FilePath(command[0])),
            arguments: Arguments(Array(command.dropFirst())),
            environment: .custom(environment(launch, account)),
            workingDirectory: FilePath(launch.handler.directory ?? "/"),
            platformOptions: options,
            input: .none,
            output: .discarded,
            error: .discarded
        ) { execution in
            process.withLock { $0 = execution.processIdentifier.value }
        }.terminationStatus
    }

    private func environment(_ launch: Launch, _ account: Account?) -> [Environment.Key: String] {
        var variables: [Environment.Key: String] = [
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        ]
        if let account {
            variables["HOME"] = account.home
            variables["USER"] = account.name
            variables["LOGNAME"] = account.name
        }
        for (name, value) in launch.handler.environment ?? [:] {
            if let key = Environment.Key(rawValue: name) { variables[key] = value }
        }
        variables["STAGEPACK_SESSION"] = launch.identifier
        variables["STAGEPACK_LAUNCH"] = launch.token
        variables["STAGEPACK_SOCKET"] = socket
        return variables
    }
}
