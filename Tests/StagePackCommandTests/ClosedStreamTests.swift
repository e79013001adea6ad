import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Programs that are started with closed standard streams, as some package managers and daemons do.
@Suite(.apart, .server, .directory)
struct ClosedStreamTests {
    /// Returns the files of a process's standard streams.
    private func streams(of process: pid_t) throws -> [String?] {
        let directory = try Directory.open(FilePath("/proc/\(process)/fd"))
        return try ["0", "1", "2"].map { try directory.link($0) }
    }

    @Test func noFileBecomesAStream() async throws {
        var world = try World()
        let pack = try SamplePack.large(try .aurora, version: 1, mebibytes: 4)
        let gate = Gate()
        try world.publish(pack) { $0.held(after: 1 << 20, until: gate) }
        let note = world.directory.path.appending("process")
        world.program.wrapper = [
            "/bin/sh", "-c", #"echo $$ >"$0"; exec "$@" <&- >&- 2>&-"#, note.string,
            try Program.path.string,
        ]
        let container = world.container
        let ending = try await world.run("prefetch") { _ in
            try await poll { partSize(below: container.appending("downloads")) > 0 }
            let process = try #require(pid_t(text(of: note).dropLast()))
            #expect(try streams(of: process) == ["/dev/null", "/dev/null", "/dev/null"])
            gate.open()
        }
        // Output fails as on a closed stream, but the run completes.
        #expect(ending.status == 74)
        #expect(try world.staged(try .aurora) == StagedFiles(pack))
        world.program.wrapper = []
        try await world.succeed("verify")
        try await world.succeed("doctor")
    }

    @Test func noFileOfADaemonBecomesAStream() async throws {
        let directory = try TemporaryDirectory.required().path
        let program = try BuiltProgram.path(of: "stagepackd")
        let script = """
            "$1" --foreground --state "$2/state" --socket "$2/socket" <&- >&- 2>&- &
            until test -S "$2/socket"; do sleep 0.05; done
            for stream in 0 1 2; do readlink /proc/$!/fd/$stream; done
            grep -vcx "0*$! running" "$2/state/lock"
            kill $!; wait $!
            """
        let shell = Program(wrapper: ["/bin/sh", "-c", script, "sh"])
        let ending = try await shell.run([program.string, directory.string])
        #expect(ending.output == "/dev/null\n/dev/null\n/dev/null\n0\n", "\(ending)")
    }
}
