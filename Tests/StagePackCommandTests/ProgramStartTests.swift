import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The start of programs of root before `main`: libraries read variables when they are loaded.
@Suite(.directory, .root("only root accepts less"))
struct ProgramStartTests {
    /// The programs that root runs.
    private static let programs: [FilePath.Component] = ["stagepack", "stagepackd"]

    /// Starts a program with stacks of increasing sizes: with the smallest, it ends before its main function.
    private static let starve = """
        import os, resource, subprocess, sys
        program, statuses = sys.argv[1], []
        for size in range(8192, 49153, 4096):
            limit = lambda: resource.setrlimit(resource.RLIMIT_STACK, (size, size))
            statuses.append(subprocess.run([program, '--version'], preexec_fn=limit,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode)
        sys.exit(0 if -11 in statuses else 'nothing has crashed: %s' % statuses)
        """

    @Test(arguments: programs)
    func aCrashAtTheStartRunsNoProgramOfTheCallers(name: FilePath.Component) async throws {
        let directory = try TemporaryDirectory.required()
        let mark = directory.path.appending("mark")
        let path = directory.path.appending("debugger")
        try ProgramFile.write("#!/bin/sh\nid > '\(mark)'\n", to: path)
        let program = Program(
            environment: ["SWIFT_BACKTRACE": "enable=yes,swift-backtrace=\(path)"],
            wrapper: [
                "/usr/bin/python3", "-c", Self.starve, try BuiltProgram.path(of: name).string,
            ]
        )
        let ending = try await program.run([])
        #expect(ending.error == "")
        #expect(ending.status == 0)
        #expect(!FileStatus.exists(mark))
    }

    /// GnuTLS, which libcurl may load, reads this file before `main`: it would block at the FIFO.
    @Test(arguments: programs)
    func noLibraryReadsAFileOfTheCallersBeforeTheProgramBegins(
        name: FilePath.Component
    ) async throws {
        let fifo = try TemporaryDirectory.required().path.appending("fifo")
        unsafe #expect(mkfifo(fifo.string, 0o600) == 0)
        let program = Program(
            environment: ["GNUTLS_SYSTEM_PRIORITY_FILE": fifo.string],
            wrapper: ["/usr/bin/timeout", "60", try BuiltProgram.path(of: name).string]
        )
        let ending = try await program.run(["--version"])
        #expect(ending.status == 0)
    }

    @Test func variablesWithoutNumberAreRemovedAndOthersStay() async throws {
        let program = try Program.path.string
        let script = """
            import os, sys
            variables = {'V%x' % number: '' for number in range(100000)}
            variables.update({'XDG_CONFIG_HOME': '/nonexistent', 'COLUMNS': '40'})
            os.execve(sys.argv[1], ['stagepack', 'help', 'prefetch'], variables)
            """
        let narrow = try await Program(wrapper: ["/usr/bin/python3", "-c", script, program]).run([])
        #expect(narrow.status == 0)
        let expected = try await Program(environment: ["COLUMNS": "40"]).run(["help", "prefetch"])
        #expect(narrow.output == expected.output)
    }
}
