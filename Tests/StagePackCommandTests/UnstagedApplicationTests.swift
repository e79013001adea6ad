import StageTesting
import Testing

/// A registered application that no run has staged a pack for.
@Suite(.server, .directory, .mountNamespace)
struct UnstagedApplicationTests {
    private let installed: Installed

    init() async throws {
        installed = try await Installed()
    }

    private func run(_ words: String...) async throws -> Program.Ending {
        try await installed.world.program.run(words + ["--app", "net.example.wallpaper"])
    }

    @Test func whyWithoutAnApplicationSucceedsBeforeTheFirstRun() async throws {
        let ending = try await installed.run("why")
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.error.hasPrefix("no run has decided anything yet\n"), "\(ending)")
    }

    @Test(arguments: ["path", "verify", "repair", "rollback", "pin", "pin --release"])
    func aCommandThatNamesAPackSaysThatItIsNotStaged(command: String) async throws {
        let words = command.split(separator: " ").map(String.init)
        let ending = try await installed.world.program.run(
            words + ["aurora", "--app", "net.example.wallpaper"]
        )
        #expect(ending.status == 2, "\(ending)")
        #expect(ending.error.contains("pack 'aurora' is not staged\n"), "\(ending)")
    }

    /// No option of 'verify' fetches a pack.
    @Test func aPackOfNoNamedApplicationIsFetchedByAnotherCommand() async throws {
        let ending = try await installed.run("verify", "aurora")
        #expect(ending.status == 2, "\(ending)")
        let hint = "run 'stagepack load aurora' with --app ID or --manifest URL to fetch it"
        #expect(ending.error.hasSuffix("hint: \(hint)\n"), "\(ending)")
    }

    /// The whole pack may be much larger than the file.
    @Test func aFileIsFetchedByTheSameCommandWithTheNetwork() async throws {
        let ending = try await run("load", "aurora", "--file", "readme.txt", "--offline")
        #expect(ending.status == 2, "\(ending)")
        let command = "stagepack load aurora --file readme.txt --app net.example.wallpaper"
        #expect(ending.error.hasSuffix("hint: run '\(command)' to fetch it\n"), "\(ending)")
    }

    @Test func aPackThatNoApplicationHasIsLookedForInTheListOfPacks() async throws {
        let ending = try await installed.run("why", "volcano")
        #expect(ending.status == 13, "\(ending)")
        let hint = "run 'stagepack ls --missing' to see all packs"
        #expect(ending.error.hasSuffix("hint: \(hint)\n"), "\(ending)")
    }

    @Test func aPackThatIsNotThereIsRemoved() async throws {
        let ending = try await run("remove", "aurora")
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output == "aurora: was not staged\n", "\(ending)")
        let text = try await run("remove", "aurora", "--json").output
        #expect(!text.contains("remaining"), "\(text)")
    }

    @Test(arguments: ["status", "ls", "du", "gc"])
    func aCommandForAllPacksSaysThatNothingIsStaged(command: String) async throws {
        let ending = try await run(command)
        #expect(ending.status == 0, "\(ending)")
        #expect((ending.output + ending.error).contains("nothing is staged yet\n"), "\(ending)")
        #expect(try await run(command, "--json").error == "")
    }

    @Test(arguments: ["repair", "verify", "pin"])
    func withoutPacksThereIsNothingToDo(command: String) async throws {
        let ending = try await run(command)
        #expect(ending.status == 0, "\(ending)")
    }

    @Test func aContainerThatIsNamedHasToExist() async throws {
        for command in ["status", "gc", "du", "ls", "repair"] {
            let ending = try await run(command, "--container", "/nowhere")
            #expect(ending.status == 41, "\(command): \(ending)")
        }
    }

    /// Before any run, and after a run whose manifest the server did not have.
    @Test func aManifestThatWasNotAcceptedYetIsNamed() async throws {
        for isAfterRun in [false, true] {
            let pack = try await run("info", "aurora")
            #expect(pack.status == 13, "\(pack)")
            #expect(
                pack.error == """
                    stagepack: error: no manifest of 'net.example.wallpaper' was accepted yet
                    hint: run 'stagepack prefetch --app net.example.wallpaper'

                    """,
                "\(isAfterRun)"
            )
            if !isAfterRun { _ = try await run("prefetch", "--attempts", "1", "--quiet") }
        }
        let status = try await run("status")
        #expect(status.status == 0, "\(status)")
        let line = "\nnet.example.wallpaper: no manifest yet: the manifest is not available: "
        #expect(status.output.contains(line), "\(status)")
        #expect(!status.output.contains("policy"), "\(status)")
    }
}
