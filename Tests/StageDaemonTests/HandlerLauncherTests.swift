import Glibc
import Logging
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageDaemon

/// The runtime directory that a handler gets, which belongs to its user.
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
        var handler = LaunchHandler(command: ["/bin/sh", "-c", #"echo "$XDG_RUNTIME_DIR" >"$F""#])
        handler.environment = ["F": file.string]
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
        return try text(of: file)
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
        let place = directory.path.pushing(name)
        let log = directory.path.appending("mounts.log")
        // Without the time limit, a launch that waits for the file system would wait for ten minutes.
        let limited = ["/usr/bin/timeout", "60", "/usr/bin/python3", "-c", SilentMounts.program]
        let mounts = try StartedProcess(limited + [place.string], log: log)
        defer { unsafe #expect(umount2(place.string, CInt(MNT_DETACH)) == 0) }
        try await poll("nothing is mounted") { try text(of: log) == "mounted\n" }
        // More than the threads of Swift's pool.
        let handlers = 0..<2 * Int64(sysconf(CInt(_SC_NPROCESSORS_ONLN)))
        try await withThrowingTaskGroup { group in
            for number in handlers {
                group.addTask { try await runtimeDirectory(ofHandler: number) }
            }
            for try await told in group { #expect(told == "\(place)\n") }
        }
        _ = consume mounts
    }
}
