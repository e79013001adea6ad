import Glibc
import StageModel
import StageSystem
import StageTesting
import Subprocess
import SystemPackage
import Testing

/// Another user of the machine, without privileges.
enum Stranger {
    /// The command that runs a program as `nobody`, without groups and privileges.
    static let command = [
        "/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
    ]

    /// A program that locks everything below a directory that it can open, in every way, and keeps on
    /// looking for more until it is killed; it adds a line with what it has locked to its output each time.
    static let locker = #"""
        import fcntl, os, struct, sys, time
        held = {}
        def grab(path):
            try: status = os.lstat(path)
            except OSError: return
            key = (status.st_dev, status.st_ino)
            if key in held: return
            for flags in (os.O_RDWR, os.O_RDONLY):
                try: file = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
                except OSError: continue
                break
            else: return
            held[key] = file
            for kind in (fcntl.F_WRLCK, fcntl.F_RDLCK):
                try:
                    fcntl.fcntl(file, 37, struct.pack("hhqqi", kind, 0, 0, 0, 0))
                    break
                except OSError: pass
            try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError: pass
            print(path, flush=True)
        while True:
            for folder, folders, files in os.walk(sys.argv[1]):
                for name in [folder] + [os.path.join(folder, name) for name in folders + files]:
                    grab(name)
            time.sleep(0.001)
        """#
}

/// Root's container while another user holds all locks that this user can take.
@Suite(.server, .directory, .severalUsers)
struct StrangerTests {
    private let world: World

    init() throws { world = try World() }

    @Test func doctorNamesTheOwnerOfAContainerWithTheCommand() async throws {
        var world = world
        try world.publish(try .small(.aurora))
        try await world.succeed("prefetch", "--quiet")
        world.program.wrapper = Stranger.command + [try Program.path.string]
        let ending = try await world.run("doctor")
        let words = "'stagepack doctor \(world.source.joined(separator: " "))'"
        #expect(
            ending.output.contains(
                "problem: container: this user cannot write it\n  hint: as user root, run \(words)\n"
            ),
            "\(ending)"
        )
    }

    /// Runs `body` while the other user holds locks, and returns the paths of the locked files, relative to the
    /// container.
    private func locking(_ body: @Sendable () async throws -> Void) async throws -> Set<String> {
        let log = world.directory.path.appending("locked")
        let script = world.directory.path.appending("locker.py")
        try world.directory.write(Array(Stranger.locker.utf8), to: "locker.py", durably: false)
        try await withThrowingTaskGroup(of: Void.self) { group in
            let container = world.container
            group.addTask {
                let file = try FileDescriptor.open(
                    log,
                    .writeOnly,
                    options: [.create, .append],
                    permissions: .ownerReadWrite
                )
                let program = "exec /usr/bin/python3 \(script) \(container)"
                _ = try await Subprocess.run(
                    .path(FilePath(Stranger.command[0])),
                    arguments: Arguments(
                        Array(Stranger.command.dropFirst()) + ["/bin/sh", "-c", program]
                    ),
                    input: .none,
                    output: .fileDescriptor(file, closeAfterSpawningProcess: true),
                    error: .discarded
                )
            }
            try await poll { try text(of: log).contains("container.json") }
            try await body()
            group.cancelAll()
        }
        let prefix = world.container.string + "/"
        return Set(
            try text(of: log).split(separator: "\n").filter { $0.hasPrefix(prefix) }
                .map { String($0.dropFirst(prefix.count)).replacing(#/[0-9a-f]{64}/#) { _ in "*" } }
        )
    }

    /// Runs a command, which has to succeed within a deadline.
    private static func succeed(_ world: World, _ arguments: String...) async throws -> String {
        var program = world.program
        program.wrapper = ["/usr/bin/timeout", "-s", "KILL", "300", try Program.path.string]
        let ending = try await program.run(arguments + world.source)
        #expect(ending.status == 0, "\(arguments): \(ending)")
        return ending.output
    }

    @Test func aUserThatLocksEverythingKeepsRootFromNothingButRemovingGenerations() async throws {
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(1_000_000, seed: 1), "b": [1], "c": [2]])
        let first = try await publisher.package(version: 1)
        try await world.succeed("fetch", "levels", "--quiet")
        try publisher.write(["a": noise(3_000_000, seed: 2), "b": [3]])
        let second = try await publisher.package(version: 2, base: first)
        let world = world
        let locked = try await locking {
            // A run that is killed halfway leaves an area, from which the next run resumes.
            try publisher.publish(second, version: 2)
            try publisher.answerForBundles { Answer.content($0).stalled(after: 1 << 20) }
            let killed = try await world.run("fetch", "levels", "--quiet") { running in
                try await poll { try Self.partOfArea(world) > 500_000 }
                running.send(SIGKILL)
            }
            #expect(killed.status == Program.killed)
            try publisher.publish(second, version: 2)
            _ = try await Self.succeed(world, "fetch", "levels", "--quiet")
            #expect(try world.staged(try PackID("levels")) == publisher.files())
            _ = try await Self.succeed(world, "rollback", "levels")
            _ = try await Self.succeed(world, "rollback", "levels")
            _ = try await Self.succeed(world, "pin", "levels")
            _ = try await Self.succeed(world, "pin", "levels", "--release")
            _ = try await Self.succeed(world, "load", "levels", "--file", "b", "--quiet")
            _ = try await Self.succeed(world, "verify")
            _ = try await Self.succeed(world, "doctor")
            _ = try await Self.succeed(world, "repair", "--quiet")
            let collected = try await Self.succeed(world, "gc", "--previous")
            #expect(collected.hasSuffix("1 generation is being read\n"))
            _ = try await Self.succeed(world, "remove", "levels")
            _ = try await Self.succeed(world, "fetch", "levels", "--quiet")
        }
        // The process could open the files that readers need, and no unfinished ones. (It can meet a generation while that is
        // moved to be removed.)
        #expect(locked.contains("generations/levels/1-*/lease"))
        let forbidden = locked.filter {
            $0.contains(#/^staging\/levels\.\*|^locks\/.|^downloads\/.*\.lock$/#)
        }
        #expect(forbidden == [])
        // Once the other process has ended, the generation that it kept can be removed.
        try await world.succeed("gc", "--previous")
        #expect(try world.names(in: "generations/levels").count == 1)
        #expect(try world.names(in: "staging") == [])
    }

    private static func partOfArea(_ world: World) throws -> Int64 {
        let staging = try Directory.open(world.container).directory("staging")
        guard let area = try staging?.entries().first else { return 0 }
        let path = FilePath(area.name).appending("content/a")
        return try staging?.status(path)?.allocatedSize ?? 0
    }
}
