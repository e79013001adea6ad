import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory)
struct UserProgramTests {
    private let directory: FilePath

    init() throws { directory = try TemporaryDirectory.required().path }

    /// A shell script as a program, which finds the test's directory in `$D`.
    private func shell(
        _ script: String,
        in location: FilePath = "/",
        as user: UserIdentity? = nil
    ) -> UserProgram {
        UserProgram(
            path: "/bin/sh",
            arguments: ["-c", script],
            environment: ["D": directory.string],
            directory: location,
            user: user
        )
    }

    private func end(_ program: UserProgram) async throws -> UserProgram.Outcome {
        try await program.run(grace: .seconds(1))
    }

    @Test func theExitStatusOrSignalIsReturned() async throws {
        #expect(try await end(shell("exit 3")) == .ended(.exited(3)))
        #expect(try await end(shell("kill -9 $$")) == .ended(.signalled(9)))
        let script = "test $(env | wc -l) -le 4 && test $PWD = \"$D\" && test ! -s /dev/stdin"
        #expect(try await end(shell(script, in: directory)) == .ended(.exited(0)))
    }

    /// The kernel reaps the children of a process that ignores SIGCHLD, and reports no exit status (wait(2)).
    @Test func withoutAnExitStatusTheEndIsUnknown() async {
        await #expect(processExitsWith: .success) {
            signal(SIGCHLD, SIG_IGN)
            let program = UserProgram(
                path: "/bin/sh",
                arguments: ["-c", "exit 3"],
                environment: [:],
                directory: "/",
                user: nil
            )
            try #require(try await program.run(grace: .seconds(1)) == .ended(.unknown))
            let conversation = try ConversationProgram("/bin/cat", environment: [:])
            let word = Array("a".utf8)
            let answer = try conversation.answer(to: word, limit: 5, within: .seconds(60))
            try #require(answer == word)
            try #require(conversation.finish(within: .seconds(60)) == .unknown)
            let sandboxed = SandboxedProgram(
                path: "/bin/sh",
                arguments: ["-c", "exit 3"],
                environment: [:],
                directory: "/",
                sandbox: Sandbox(
                    readable: ["/"],
                    executable: ["/"],
                    writable: [],
                    addressSpace: 1 << 30,
                    fileSize: 0,
                    cpuSecondLimit: 60
                ),
                required: .none,
                timeLimit: .seconds(60)
            )
            try #require(try sandboxed.run(input: []).ending == .ended(.unknown))
        }
    }

    @Test func startErrorsNameTheFailedStep() async throws {
        var program = shell("", in: directory.appending("none"))
        var problem = await #expect(throws: FileError.self) {
            try await program.run(grace: .seconds(1))
        }
        #expect(problem?.operation == "enter the directory of")
        #expect(problem?.errno == .noSuchFileOrDirectory)
        program = shell("")
        program.path = directory.appending("none")
        problem = await #expect(throws: FileError.self) {
            try await program.run(grace: .seconds(1))
        }
        #expect(problem?.path == program.path)
        #expect(problem?.errno == .noSuchFileOrDirectory)
    }

    @Test func aProgramThatIsToEndLeavesNothing() async throws {
        let program = shell(
            #"""
            (trap "" TERM; sleep 1000 & echo $! >"$D/part"; mv "$D/part" "$D/pid"; wait) &
            wait
            """#
        )
        let run = Task { try await program.run(grace: .seconds(600)) }
        let file = directory.appending("pid")
        try await poll("it has not started") { FileStatus.exists(file) }
        let process = try #require(pid_t(text(of: file).split(separator: "\n").first ?? ""))
        run.cancel()
        // The shell ends with the signal; the process that it leaves ignores it, and is killed.
        #expect(try await run.value == .ended(.signalled(Int(SIGTERM))))
        try await poll("what it started goes on") {
            let status = try? text(of: FilePath("/proc/\(process)/stat"))
            return status.map { $0.isEmpty || $0.contains(") Z ") } ?? true
        }
    }

    @Test func aProgramThatDoesNotWantToEndIsKilled() async throws {
        let program = shell(#"trap "" TERM; : >"$D/ready"; while :; do sleep 0.1; done"#)
        let run = Task { try await program.run(grace: .milliseconds(100)) }
        let file = directory.appending("ready")
        try await poll("it has not started") { FileStatus.exists(file) }
        run.cancel()
        #expect(try await run.value == .ended(.signalled(Int(SIGKILL))))
    }

    /// With glibc's setuid(3), about one in twenty of these would wait forever for a thread that was being
    /// started in this process.
    @Test(.timeLimit(.minutes(10)), .severalUsers)
    func anotherUserIsTakenOnWhileThreadsComeAndGo() async throws {
        let nobody = UserIdentity(user: 65534, group: 65534, groups: [65534, 4])
        let script = "test $(id -u) = 65534 && test \"$(id -G)\" = '65534 4'"
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<2 {
                group.addTask {
                    while !Task.isCancelled {
                        try SystemThread(name: "churn") {}.join()
                        await Task.yield()
                    }
                }
            }
            for _ in 0..<100 {
                let ending = try await shell(script, as: nobody).run(grace: .seconds(1))
                #expect(ending == .ended(.exited(0)))
            }
            group.cancelAll()
        }
    }
}
