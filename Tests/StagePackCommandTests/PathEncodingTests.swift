import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Paths that are not UTF-8: Swift's strings would replace the invalid bytes, and so name another file.
@Suite(.server, .directory)
struct PathEncodingTests {
    /// Runs a shell in the test's directory, where `$N` is a name that is not UTF-8 and `$P` the program.
    private func run(_ script: String) async throws -> Program.Ending {
        var world = try World()
        try world.publish(try .small(.aurora))
        let text = """
            cd '\(world.directory.path)'; N=$(printf 'caf\\351'); P='\(try Program.path)'
            M='--manifest \(world.manifestURL)'
            \(script)
            echo "status $?"
            ls | grep -c caf
            """
        world.program.wrapper = ["/bin/sh", "-c", text]
        return try await world.program.run([])
    }

    private static let commands = [
        "prefetch $M --container $N", "load aurora $M --container=$N", "path aurora --container $N",
        "status --container $N", "verify --container $N", "doctor --container $N",
        "gc --container $N", "remove aurora --container $N", "rollback aurora --container $N",
        "pin aurora --container $N", "repair $M --container $N", "plan $M --container $N",
        "why --container $N", "fetch aurora $M --container $N", "package $N", "manifest lint $N",
        "manifest create --application net.example.a -o $N", "serve $N", "app validate $N",
        "template -o $N", "prefetch $M --container x --netrc $N",
    ]

    @Test(arguments: commands) func anArgumentThatIsNotUTF8IsRefused(_ command: String) async throws
    {
        let ending = try await run("$P \(command)")
        let number = command.split(separator: " ").firstIndex { $0.contains("$N") } ?? 0
        // The manifest's option is two words.
        let shift = command.split(separator: " ").prefix(number).contains("$M") ? 1 : 0
        let words = ending.error.split(separator: "\n")
        #expect(ending.output == "status 64\n0\n", "\(ending)")
        #expect(words.count == 2)
        #expect(
            words.first?.hasPrefix(
                "stagepack: error: expected UTF-8, found argument \(number + shift + 1): '"
            ) ?? false,
            "\(ending)"
        )
        #expect(words.last?.hasPrefix("hint: rename the file or directory, or ") ?? false)
    }

    @Test func aHookWithSuchAnArgumentSaysItAndEndsWell() async throws {
        let ending = try await run("$P prefetch $M --hook --container $N")
        #expect(ending.output.hasPrefix("stagepack: hook: nothing staged: expected UTF-8, found "))
        #expect(ending.output.hasSuffix("\nstatus 0\n0\n"), "\(ending)")
    }

    @Test(arguments: ["HOME", "XDG_DATA_HOME"])
    func aVariableThatIsNotUTF8IsRefused(_ name: String) async throws {
        // Root's programs use the system's containers, those of another user the user's.
        let user = geteuid() == 0 ? "setpriv --reuid=61234 --regid=61234 --clear-groups " : ""
        let ending = try await run(
            "chmod 777 .; \(name)=$PWD/$N \(user)$P prefetch $M"
        )
        #expect(ending.output == "status 64\n0\n", "\(ending)")
        #expect(ending.error.contains("expected UTF-8, found the variable \(name): '"))
    }

    @Test func aWorkingDirectoryThatIsNotUTF8IsRefusedWhereItMatters() async throws {
        let relative = try await run(
            "mkdir $N; cd $N; $P prefetch $M --container here; S=$?; cd ..; (exit $S)"
        )
        #expect(relative.output == "status 64\n1\n", "\(relative)")
        #expect(
            relative.error.contains("the working directory is not UTF-8: pass an absolute path")
        )
        let absolute = try await run(
            "D=$PWD; mkdir $N; cd $N; $P prefetch --quiet $M --container $D/here >/dev/null; S=$?; cd ..; (exit $S)"
        )
        #expect(absolute.output == "status 0\n1\n", "\(absolute)")
    }

    @Test func aLinkLeadsToADirectoryThatIsNotUTF8() async throws {
        let ending = try await run(
            "mkdir $N; ln -s $N link; $P prefetch --quiet $M --container link >/dev/null && "
                + "$P verify --container link && test -d $N/packs"
        )
        #expect(ending.output == "aurora: as it was staged\nstatus 0\n1\n", "\(ending)")
    }
}
