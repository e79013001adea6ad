import FoundationEssentials
import Glibc
import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A scarce resource of a process.
enum Shortage: CustomTestStringConvertible {
    /// Processes and threads in a control group.
    case processes(Int)
    /// Processes and threads of a user other than root, by `RLIMIT_NPROC`.
    case processesOfUser(Int)
    /// Open files.
    case files(Int)
    /// Mebibytes of address space.
    case addressSpace(Int)
    /// Mebibytes of memory in a control group.
    case memory(Int)
    /// Blocks of the disk that the container is on.
    case blocks(Int)
    /// Files of the disk that the container is on.
    case inodes(Int)

    var testDescription: String { "\(self)" }

    /// `true` if the test can create the shortage here.
    var isAvailable: Bool {
        switch self {
        case .processes: ControlGroup.canLimit(.processes)
        case .memory: ControlGroup.canLimit(.memory)
        case .files, .addressSpace: true
        case .processesOfUser, .blocks, .inodes: geteuid() == 0
        }
    }

    /// Calls `body` with the wrapper that starts a program under the shortage.
    func with<Value>(
        _ container: FilePath,
        _ body: ([String]) async throws -> Value
    ) async throws -> Value {
        let prlimit = "/usr/bin/prlimit"
        switch self {
        case .processes(let count): return try await grouped(.processes, count, body)
        case .memory(let count): return try await grouped(.memory, count << 20, body)
        case .files(let count): return try await body([prlimit, "--nofile=\(count):\(count)"])
        case .addressSpace(let count):
            return try await body([prlimit, "--as=\(count << 20):\(count << 20)"])
        case .processesOfUser(let count):
            let user = ["--reuid=\(Self.user)", "--regid=\(Self.user)", "--clear-groups"]
            return try await body(
                [prlimit, "--nproc=\(count):\(count)", "/usr/bin/setpriv"] + user
            )
        case .blocks(let count): return try await body(mounted(container, "size=\(count * 4)k"))
        case .inodes(let count):
            return try await body(mounted(container, "size=64m,nr_inodes=\(count)"))
        }
    }

    private func grouped<Value>(
        _ resource: ControlGroup.Resource,
        _ limit: Int,
        _ body: ([String]) async throws -> Value
    ) async throws -> Value {
        let group = try ControlGroup(resource, limit: limit)
        let result: Result<Value, any Error>
        do {
            result = .success(try await body(group.wrapper))
        } catch {
            result = .failure(error)
        }
        try await group.remove()
        return try result.get()
    }

    private func mounted(_ path: FilePath, _ options: String) -> [String] {
        let script =
            #"mkdir -p "$0" && mount -t tmpfs -o \#(options) none "$0" || exit 99; exec "$@""#
        return ["/usr/bin/unshare", "-m", "/bin/sh", "-c", script, path.string]
    }

    /// A user without processes.
    static let user: uid_t = 61_234
}

/// The program under shortages: it reports an error, never traps or stays silent, and in a hook never fails the package
/// manager.
@Suite(.apart, .serialized, .server, .directory)
struct ShortageTests {
    private static let deadline = 3.0
    /// The guard's timeout beyond the deadline, and the time that a busy machine takes.
    private static let timeout = Duration.seconds(deadline + 5 + 25)

    private static let shortages: [Shortage] =
        (1...12).map { .processes($0) } + [16, 24].map { .processes($0) }
        + [1, 2, 3, 4, 5, 6, 8, 12, 16].map { .processesOfUser($0) }
        + [4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32, 48, 51, 52, 64].map { .files($0) }
        + [200, 230, 260, 300, 400].map { .addressSpace($0) }
        + [48, 64, 96].map { .memory($0) }
    private static let disks: [Shortage] =
        [1, 2, 3, 4, 5, 6, 8, 12, 16, 32].map { .blocks($0) }
        + [1, 2, 3, 4, 5, 6, 8, 12, 16, 24].map { .inodes($0) }

    private func world() throws -> World {
        var world = try World()
        try world.publish(try .small(.aurora))
        // The test's directory is opened to other users, who create the container.
        unsafe _ = chmod(world.directory.path.string, 0o777)
        return world
    }

    /// Returns whether the message is that of the dynamic loader.
    private static func isLoaders(_ error: String) -> Bool {
        error.contains("shared libraries") || error == "out of memory\n"
            || error.contains("cannot allocate TLS data structures")
    }

    /// Runs the program with the shortage; returns `nil` if the dynamic loader has failed already.
    private func run(
        _ arguments: [String],
        _ shortage: Shortage
    ) async throws -> (ending: Program.Ending, time: Duration)? {
        var world = try world()
        let program = try Program.path.string
        return try await shortage.with(world.container) { wrapper in
            world.program.wrapper = wrapper + [program]
            let start = ContinuousClock.now
            let ending = try await world.program.run(arguments + world.source)
            // The loader reports the shortage; or the process is killed before the program begins.
            if ending.status == 127, Self.isLoaders(ending.error) { return nil }
            return (ending, ContinuousClock.now - start)
        }
    }

    @Test(arguments: shortages + disks)
    func aHookCannotHurt(_ shortage: Shortage) async throws {
        guard shortage.isAvailable else { return }
        let arguments = ["prefetch", "--hook", "--attempts", "1", "--deadline", "\(Self.deadline)"]
        guard let (ending, time) = try await run(arguments, shortage) else { return }
        #expect(ending.status == 0, "\(ending)")
        #expect(time < Self.timeout)
        let lines = ending.hookLines
        #expect(lines.count == 1, "\(ending)")
        #expect(lines.allSatisfy { $0.hasPrefix("stagepack: ") })
        if !ending.output.contains("1 staged") {
            #expect(ending.output.hasSuffix("; the next periodic run retries\n"), "\(ending)")
        }
    }

    @Test(arguments: shortages.filter { if case .memory = $0 { false } else { true } } + disks)
    func aCommandSaysWhatIsMissing(_ shortage: Shortage) async throws {
        guard shortage.isAvailable else { return }
        let arguments = ["prefetch", "--attempts", "1", "--deadline", "20"]
        guard let (ending, _) = try await run(arguments, shortage) else { return }
        #expect(ending.status < 128, "\(ending)")
        if ending.status != 0 { #expect(ending.error.contains("stagepack: error: "), "\(ending)") }
    }

    @Test func aMessageNamesTheScarceResourceAndTheNextStep() async throws {
        let (files, _) = try #require(try await run(["prefetch"], .files(20)))
        #expect(files.status == 71)
        #expect(
            files.error.contains(
                #/^stagepack: error: only \d+ more files? can be opened, and 48 are needed\nhint: raise the limits/#
            )
        )
        let (json, _) = try #require(try await run(["prefetch", "--json"], .files(20)))
        #expect(json.output.contains(#""status" : 71"#))
        let (strict, _) = try #require(
            try await run(["prefetch", "--hook", "--strict"], .files(20))
        )
        #expect(strict.status == 71)
        #expect(
            strict.output.hasPrefix("stagepack: hook: nothing staged: only ")
        )
    }

    /// The manifest declares the largest index that the files of the pack can have, and the server does not have it.
    @Test func anIndexThatDoesNotFitInMemoryIsNotRequested() async throws {
        var world = try World()
        let digest = Digest(of: [1])
        let pack = Pack(
            id: try PackID("aurora"),
            version: 1,
            policy: .essential([.firstInstallation, .subsequentUpdate]),
            archive: nil,
            index: PackIndex(
                url: "i/\(digest)",
                size: .mebibytes(256),
                digest: digest,
                contentSize: .mebibytes(256),
                contentDigest: digest,
                bundleSize: .kibibytes(1)
            ),
            installedSize: .mebibytes(1),
            fileCount: 40_000
        )
        let manifest = Manifest(
            application: try ApplicationID("net.example.wallpaper"),
            revision: 1,
            packs: [pack]
        )
        world.server.answer("/manifest.json", with: .content(manifest.json()))
        let program = try Program.path.string
        // Less than the compressed and the decompressed index take.
        let ending = try await Shortage.addressSpace(480).with(world.container) { wrapper in
            world.program.wrapper = wrapper + [program]
            return try await world.program.run(["prefetch"] + world.source)
        }
        #expect(ending.status == 71, "\(ending)")
        let needed = ByteCount.mebibytes(512)
        let message = "pack 'aurora': not enough memory for the index: \(needed) needed, "
        #expect(ending.error.contains(message), "\(ending)")
        #expect(ending.error.contains("hint: raise the limits"), "\(ending)")
        #expect(world.server.counts(for: "/i/\(digest)").requests == 0)
    }

    /// Runs the program without `/proc`, as in a root directory from which an image is built.
    private func runWithoutProcfs(_ arguments: [String]) async throws -> Program.Ending {
        var world = try world()
        world.program.wrapper = [
            "/usr/bin/unshare", "-m", "/bin/sh", "-c",
            #"mount -t tmpfs none /proc || exit 99; exec "$@""#, "sh", try Program.path.string,
        ]
        return try await world.program.run(arguments + world.source)
    }

    @Test(.mountNamespace)
    func withoutProcfsAProgramSaysSo() async throws {
        let ending = try await runWithoutProcfs(["prefetch"])
        let error = """
            stagepack: error: '/proc' does not show this process
            hint: mount it: 'mount -t proc proc /proc'

            """
        #expect(ending == Program.Ending(status: 71, output: "", error: error))
        let hook = try await runWithoutProcfs(["prefetch", "--hook"])
        let line =
            "stagepack: hook: nothing staged: '/proc' does not show this process; mount it: 'mount -t proc proc /proc'; the next periodic run retries\n"
        #expect(hook == Program.Ending(status: 0, output: line, error: ""))
        #expect(try await runWithoutProcfs(["prefetch", "--hook", "--strict"]).status == 71)
    }

    /// Linux before 5.6, a filter of a container, and `RestrictSUIDSGID=` of a service refuse openat2(2).
    @Test(.strace, arguments: ["ENOSYS", "EPERM"])
    func withoutOpenat2AProgramSaysSo(error: String) async throws {
        var world = try world()
        func run(_ name: FilePath.Component, _ arguments: [String]) async throws -> Program.Ending {
            world.program.wrapper = [
                "/usr/bin/strace", "-f", "-o", "/dev/null", "-e", "trace=openat2", "-e",
                "inject=openat2:error=\(error)", try BuiltProgram.path(of: name).string,
            ]
            return try await world.program.run(arguments)
        }
        let message = "the system refuses openat2(2), which keeps paths inside their directories"
        let hint =
            "it needs Linux 5.6 or later; the filter of system calls of a container has to permit it, and a service must "
            + "not set 'RestrictSUIDSGID='"
        let ending = try await run("stagepack", ["prefetch"] + world.source)
        let text = "stagepack: error: \(message)\nhint: \(hint)\n"
        #expect(ending == Program.Ending(status: 71, output: "", error: text))
        let hook = try await run("stagepack", ["prefetch", "--hook"] + world.source)
        let line =
            "stagepack: hook: nothing staged: \(message); \(hint); the next periodic run retries\n"
        #expect(hook == Program.Ending(status: 0, output: line, error: ""))
        let daemon = try await run("stagepackd", ["--state", world.directory.path.string])
        #expect(daemon.status == 71 && daemon.error.contains("refuses openat2(2)"), "\(daemon)")
    }

    @Test(.strace, arguments: ["stagepack", "stagepackd"] as [FilePath.Component])
    func argumentsAreKnownThoughTheStackIsNotShown(_ name: FilePath.Component) async throws {
        let program = Program(wrapper: [
            "/usr/bin/timeout", "60", "/usr/bin/strace", "-f", "-o", "/dev/null", "-P",
            "/proc/self/maps", "-e", "inject=openat:error=EMFILE",
            try BuiltProgram.path(of: name).string,
        ])
        let ending = try await program.run(["--version"])
        #expect(ending.status == 0)
        #expect(ending.output == "\(try Self.version)\n")
    }

    /// The version that the sources have.
    private static var version: Substring {
        get throws {
            let root = FilePath(#filePath).removingLastComponent().removingLastComponent()
                .removingLastComponent()
            let header = try text(of: root.appending("Sources/ProgramStart/include/ProgramStart.h"))
            return try #require(header.firstMatch(of: #/STAGEPACK_VERSION "(.+)"/#)).output.1
        }
    }

    /// System calls of runtimes, and the kernel's errors for exhausted resources.
    private static let calls = [
        ("clone3", "EAGAIN"), ("clone", "EAGAIN"), ("eventfd2", "EMFILE"),
        ("epoll_create1", "EMFILE"), ("epoll_ctl", "ENOSPC"), ("timerfd_create", "EMFILE"),
        ("socket", "EMFILE"),
    ]
    private static let moments = ["1", "2", "3", "1+", "2+", "3+"]

    @Test(.strace, arguments: calls, moments)
    func aHookWhoseSystemCallsFailCannotHurt(
        _ call: (name: String, error: String),
        _ moment: String
    ) async throws {
        try await expectHarmless("\(call.name):error=\(call.error):when=\(moment)", of: call.name)
    }

    @Test(.strace, arguments: Array(stride(from: 4, through: 60, by: 4)))
    func aHookThatGetsNoMemoryCannotHurt(_ beyond: Int) async throws {
        // The number of mappings before the program begins may differ by one.
        let moment = try await mappings() + beyond - 8
        try await expectHarmless("mmap:error=ENOMEM:when=\(moment)+", of: "mmap")
    }

    /// Returns how often the loader maps memory.
    private func mappings() async throws -> Int {
        var world = try world()
        let trace = world.directory.path.appending("trace")
        world.program.wrapper = [
            "/usr/bin/strace", "-o", trace.string, "-e", "trace=mmap", try Program.path.string,
        ]
        _ = try await world.program.run(["unpack-service"])
        let bytes = try File.open(reading: trace).readAll(limit: 1 << 20)
        return String(decoding: bytes, as: UTF8.self).split(separator: "\n").count
    }

    private func expectHarmless(_ injection: String, of call: String) async throws {
        var world = try world()
        world.program.wrapper = [
            "/usr/bin/strace", "-f", "-o", "/dev/null", "-e", "trace=\(call)", "-e",
            "inject=\(injection)", try Program.path.string,
        ]
        let start = ContinuousClock.now
        let ending = try await world.program.run(
            ["prefetch", "--hook", "--attempts", "1", "--deadline", "\(Self.deadline)"]
                + world.source
        )
        if ending.status == 127, Self.isLoaders(ending.error) { return }
        #expect(ending.status == 0, "\(ending)")
        #expect(ContinuousClock.now - start < Self.timeout)
        #expect(ending.hookLines.count == 1, "\(ending)")
    }
}

extension Program.Ending {
    /// The lines of a hook's output after the one that it prints at its start.
    fileprivate var hookLines: [Substring] {
        var lines = output.split(separator: "\n")
        if lines.first?.hasPrefix("stagepack: installing ") == true { lines.removeFirst() }
        return lines
    }
}
