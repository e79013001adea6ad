import Logging
import StageControl
import StageSystem
import SystemPackage

/// Starts the handlers of sessions as the session's user, in a new process group and process session, without
/// descriptors or variables of the daemon.
struct HandlerLauncher: Sendable {
    private let socket: String
    private let runtimeDirectories: FilePath
    let groups: HandlerGroups?
    private let logger: Logger

    /// Creates a launcher, and divides this process's control group if the service manager has delegated it.
    ///
    /// `runtimeDirectories` is where root creates a directory for each user who is logged in.
    init(socket: String, runtimeDirectories: FilePath = "/run/user", logger: Logger) {
        self.socket = socket
        self.runtimeDirectories = runtimeDirectories
        self.logger = logger
        groups = HandlerGroups.prepare(logger: logger)
    }

    /// Starts a handler and waits for its end.
    ///
    /// When the launch is stopped, the handler gets SIGTERM, and after 10 seconds SIGKILL together with its process
    /// group. If that does not end the handler, this waits for its end until the task is cancelled.
    func run(_ launch: HandlerLaunch) async {
        let remaining = await launch.run { [self] in await runUntilStopped(launch) }
        await remaining?.waitForEnd()
        await withBlockingThread { groups?.end("\(launch.session)", of: launch.user) }
    }

    /// Returns the process of the handler if it cannot be killed.
    private func runUntilStopped(_ launch: HandlerLaunch) async -> UnkillableProcess? {
        do throws(FileError) {
            switch try await start(launch) {
            case .ended(let status):
                logger.info(
                    "A handler has ended",
                    metadata: [
                        "session.identifier": "\(launch.identifier)",
                        "handler.status": "\(status)",
                    ]
                )
                return nil
            case .unkillable(let process):
                logger.warning(
                    "A handler cannot be killed",
                    metadata: [
                        "session.identifier": "\(launch.identifier)", "user": "\(launch.user)",
                        "process.id": "\(process.id)",
                    ]
                )
                return process
            }
        } catch {
            logFailure(error, of: launch)
            return nil
        }
    }

    /// Logs that a handler was not started; if its user is the cause, at a level that the service of the system does
    /// not write.
    private func logFailure(_ error: FileError, of launch: HandlerLaunch) {
        var metadata = error.metadata
        metadata["session.identifier"] = "\(launch.identifier)"
        metadata["user"] = "\(launch.user)"
        logger.log(
            level: UserProgram.isDueToProgram(error) ? .info : .error,
            "A handler could not be started",
            metadata: metadata
        )
    }

    private func start(_ launch: HandlerLaunch) async throws(FileError) -> UserProgram.Outcome {
        let handler = launch.handler
        let (account, identity) = try await withBlockingThread { () throws(FileError) in
            (
                Account(user: launch.user),
                try Self.identity(
                    launch.user,
                    rights: launch.rights,
                    for: FilePath(handler.command[0])
                )
            )
        }
        let group = try await withBlockingThread { () throws(FileError) in
            try groups?.makeGroup("\(launch.session)", of: launch.user)
        }
        return try await UserProgram(
            path: FilePath(handler.command[0]),
            arguments: Array(handler.command.dropFirst()),
            environment: environment(for: launch, account: account),
            directory: FilePath(handler.directory ?? "/"),
            user: identity,
            controlGroup: group
        )
        .run(grace: .seconds(10))
    }

    /// Returns the identity for a program of a session: the session's user, with those recorded groups that the user
    /// is still a member of.
    ///
    /// `nil` stands for the user of this process.
    ///
    /// - Throws: ``FileError`` if the user's account no longer exists.
    static func identity(
        _ user: UInt32,
        rights: SessionRights,
        for path: FilePath
    ) throws(FileError) -> UserIdentity? {
        guard user != UserIdentity.current.user else { return nil }
        guard let account = Account(user: user) else {
            throw FileError(
                "find the account of user \(user) for",
                path: path,
                errno: .noSuchProcess
            )
        }
        let member = Set(UserIdentity(user: user, group: account.group).groups)
        return UserIdentity(
            user: user,
            group: member.contains(rights.group) ? rights.group : account.group,
            groups: rights.groups.filter(member.contains)
        )
    }

    /// Returns the environment of a handler.
    ///
    /// - Throws: ``FileError`` if its user has no home directory: a program without `HOME` saves its files elsewhere than the
    ///   user's other programs, or loses them. The events and files of the session stay.
    private func environment(
        for launch: HandlerLaunch,
        account: Account?
    ) throws(FileError) -> [String: String] {
        var variables = Self.variables(of: account)
        if account == nil, launch.user == UserIdentity.current.user {
            variables["HOME"] = ProcessEnvironment.current["HOME"]
        }
        variables["XDG_RUNTIME_DIR"] = runtimeDirectory(of: launch.user)?.string
        variables.merge(launch.handler.environment ?? [:]) { _, own in own }
        guard variables["HOME"]?.hasPrefix("/") ?? false else {
            throw FileError(
                "find the home directory of user \(launch.user) for",
                path: FilePath(launch.handler.command[0]),
                errno: .noSuchFileOrDirectory
            )
        }
        variables["STAGEPACK_SESSION"] = launch.identifier
        variables["STAGEPACK_LAUNCH"] = launch.token
        variables["STAGEPACK_SOCKET"] = socket
        return variables
    }

    /// Returns the base environment of every program started for a user.
    static func variables(of account: Account?) -> [String: String] {
        var variables = [
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        ]
        if let account {
            variables["HOME"] = account.home
            variables["USER"] = account.name
            variables["LOGNAME"] = account.name
        }
        return variables
    }

    /// Returns the runtime directory of a user who is logged in (pam_systemd(8)), or `nil` if there is none.
    ///
    /// Root created the name, so the owner is not checked: inspecting the directory would send a request to a
    /// file system that the user mounted there.
    private func runtimeDirectory(of user: UInt32) -> FilePath? {
        // Without the directory of these directories, no user has one.
        guard let name = FilePath.Component("\(user)"),
            let parent = try? Directory.open(runtimeDirectories), parent.hasDirectory(name)
        else { return nil }
        return runtimeDirectories.appending(name)
    }
}
