import Glibc
import Logging
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageDaemon

/// The directories that a handler gets in its environment, which belong to its user.
@Suite(.directory)
struct HandlerLauncherTests {
    private let directory: Directory
    private let launcher: HandlerLauncher
    private let name = FilePath("\(geteuid())")

    init() throws {
        directory = try TemporaryDirectory.required()
        launcher = HandlerLauncher(
            socket: "/none",
            runtimeDirectories: directory.path,
            logger: Logger(label: "test")
        )
    }

    /// Starts a handler, waits for its end, and returns the runtime directory that it got.
    private func runtimeDirectory(ofHandler number: Int64) async throws -> String {
        let file = directory.path.appending("told-\(number)")
        try await launch(number, #"echo "$XDG_RUNTIME_DIR" >"$F""#, ["F": file.string])
        return try text(of: file)
    }

    /// Starts a handler, and waits for its end.
    private func launch(
        _ number: Int64,
        _ script: String,
        _ environment: [String: String]
    ) async throws {
        var handler = LaunchHandler(command: ["/bin/sh", "-c", script])
        handler.environment = environment
        let launch = HandlerLaunch(
            session: number,
            identifier: "s",
            user: geteuid(),
            rights: SessionRights(group: getegid(), groups: []),
            handler: handler,
            token: "t",
            timeLimit: 600
        )
        await launcher.run(launch)
    }

    @Test func theHandlersOwnHomeComesBeforeThatOfTheAccount() async throws {
        let script = #"echo "$HOME" >"$F""#
        let (own, account) = (directory.path.appending("own"), directory.path.appending("account"))
        try await launch(1, script, ["F": own.string, "HOME": "/mnt/home"])
        #expect(try text(of: own) == "/mnt/home\n")
        try await launch(2, script, ["F": account.string])
        let home = try #require(Account(user: geteuid())).home
        #expect(try text(of: account) == "\(home)\n")
    }

    /// Foundation would take a directory that does not exist, and lose the files of the handler.
    @Test(arguments: ["", "home"]) func nothingIsStartedWithoutAHome(home: String) async throws {
        let file = directory.path.appending("started")
        try await launch(1, #"echo >"$F""#, ["F": file.string, "HOME": home])
        #expect(!FileStatus.exists(file))
    }

    @Test func onlyADirectoryOfThatNameCounts() async throws {
        #expect(try await runtimeDirectory(ofHandler: 1) == "\n")
        try directory.createDirectory("other")
        try directory.createLink(name, to: "other")
        #expect(try await runtimeDirectory(ofHandler: 2) == "\n")
        try directory.remove(try #require(name.lastComponent))
        try directory.createDirectory(name)
        #expect(try await runtimeDirectory(ofHandler: 3) == "\(directory.path.pushing(name))\n")
    }

    /// A user may mount a file system on a directory that is the user's own (fusermount3(1)).
    @Test(.mountedFileSystems, .fuse)
    func aMountOnARuntimeDirectoryDelaysNoHandler() async throws {
        try directory.createDirectory(name)
        let path = directory.path.pushing(name)
        let log = directory.path.appending("mounts.log")
        // Without the time limit, a launch that waits for the file system would wait for ten minutes.
        let limited = ["/usr/bin/timeout", "60", "/usr/bin/python3", "-c", SilentMounts.program]
        let mounts = try StartedProcess(limited + [path.string], log: log)
        defer { unsafe #expect(umount2(path.string, CInt(MNT_DETACH)) == 0) }
        try await poll("nothing is mounted") { try text(of: log) == "mounted\n" }
        // More than the threads of Swift's pool.
        let handlers = 0..<2 * Int64(sysconf(CInt(_SC_NPROCESSORS_ONLN)))
        try await withThrowingTaskGroup { group in
            for number in handlers {
                group.addTask { try await runtimeDirectory(ofHandler: number) }
            }
            for try await told in group { #expect(told == "\(path)\n") }
        }
        _ = consume mounts
    }
}
