import Logging
import StageControl
import StageSystem
import SystemPackage

/// Starts the handlers of sessions: as the session's user, in a process group and session of their own,
/// without what is the daemon's.
struct Launcher: Sendable {
    private let socket: String
    let groups: HandlerGroups?
    private let logger: Logger

    /// Creates a launcher, and divides the control group of this process where that is left to it.
    init(socket: String, logger: Logger) {
        self.socket = socket
        self.logger = logger
        groups = HandlerGroups.prepare(logger: logger)
    }

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
            await withBlockingThread { groups?.end("\(launch.session)", of: launch.user) }
        }
    }

    private func start(_ launch: Launch) async throws(FileError) -> ChildProcess.Ending {
        let handler = launch.handler
        let (account, identity) = try await withBlockingThread { () throws(FileError) in
            (
                Account(user: launch.user),
                try Self.identity(launch.user, launch.rights, for: FilePath(handler.command[0]))
            )
        }
        let group = try await withBlockingThread { () throws(FileError) in
            try groups?.makeGroup("\(launch.session)", of: launch.user)
        }
        return try await UserProgram(
            path: FilePath(handler.command[0]),
            arguments: Array(handler.command.dropFirst()),
            environment: environment(launch, account),
            directory: FilePath(handler.directory ?? "/"),
            user: identity,
            controlGroup: group
        )
        .run(grace: .seconds(10))
    }

    /// Whom a program of a session runs as, `nil` for the user of this process: the session's user, in those
    /// groups of the process that made the session which the user is still a member of.
    ///
    /// - Throws: ``FileError`` if the user has no account any more.
    static func identity(
        _ user: UInt32,
        _ rights: SessionRights,
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

    private func environment(_ launch: Launch, _ account: Account?) -> [String: String] {
        var variables = Self.variables(of: account)
        variables["XDG_RUNTIME_DIR"] = Self.runtimeDirectory(of: launch.user)?.string
        variables.merge(launch.handler.environment ?? [:]) { _, own in own }
        variables["STAGEPACK_SESSION"] = launch.identifier
        variables["STAGEPACK_LAUNCH"] = launch.token
        variables["STAGEPACK_SOCKET"] = socket
        return variables
    }

    /// The environment that every program of a user's begins with.
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

    /// The runtime directory that systemd has made for a user who is logged in (pam_systemd(8)), or `nil` if there is
    /// none that belongs to the user.
    private static func runtimeDirectory(of user: UInt32) -> FilePath? {
        let (parent, name) = (FilePath("/run/user"), FilePath("\(user)"))
        guard let status = try? Directory.open(parent).status(name), status.kind == .directory,
            status.owner == user
        else { return nil }
        return parent.appending(name.string)
    }
}
