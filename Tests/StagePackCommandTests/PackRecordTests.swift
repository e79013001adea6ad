import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Archives and indexes that are added to a manifest with the recipe that they were made from, or with another.
@Suite(.directory)
struct PackRecordTests: PublisherSuite {
    let directory: Directory
    let program: Program

    init() async throws {
        directory = try TemporaryDirectory.required()
        program = try Program(in: directory)
        for name in ["one", "two"] { try write(name, "content of \(name)") }
        try write("one.json", Self.recipe("aurora", file: "one"))
        try write("two.json", Self.recipe("borealis", file: "two"))
        let create = ["manifest", "create", "--application", "net.example", "-o", "m.json"]
        #expect(try await program.run(create).status == 0)
    }

    private static func recipe(_ pack: String, file: String, more: String = "") -> String {
        """
        {"assetPackID": "\(pack)", "downloadPolicy": {"onDemand": {}}, "fileSelectors": [{"file": "\(file)"}]\(more)}
        """
    }

    private func add(
        _ archive: String,
        _ recipe: String,
        version: Int = 1
    ) async throws -> Program.Ending {
        try await program.run([
            "manifest", "add", "m.json", archive, "--recipe", recipe, "--pack-version",
            "\(version)",
        ])
    }

    /// Packages a recipe, and returns the name of the archive or the index.
    private func package(_ recipe: String, indexed: Bool) async throws -> String {
        let options = indexed ? ["--indexed", "-o", "store"] : ["-o", "pack.tar.gz"]
        let made = try await program.run(["package", recipe] + options)
        #expect(made.status == 0, "\(made)")
        guard indexed else { return "pack.tar.gz" }
        let name = made.output.firstMatch(of: #/store/i/[0-9a-f]{64}/#)
        return String(try #require(name).output)
    }

    /// Runs the command of a hint, with the arguments that a shell parses.
    private func follow(_ ending: Program.Ending) async throws -> Program.Ending {
        let words = try await HintedCommand.words(in: ending.error)
        return try await program.run(words)
    }

    @Test(arguments: [false, true])
    func anotherRecipeThanThatOfTheArchiveIsRefused(indexed: Bool) async throws {
        let archive = try await package("one.json", indexed: indexed)
        let refused = try await add(archive, "two.json")
        let message = """
            stagepack: error: '\(archive)': it was made from another recipe, of pack 'aurora'
            hint: pass the recipe of pack 'aurora' with --recipe

            """
        #expect(refused == Program.Ending(status: 31, output: "", error: message))
        let added = try await add(archive, "one.json")
        #expect(added.status == 0)
        #expect(added.error == "")
    }

    @Test(arguments: [false, true])
    func aRecipeThatSelectsOtherFilesSinceIsRefused(indexed: Bool) async throws {
        let archive = try await package("one.json", indexed: indexed)
        let noted = Self.recipe("aurora", file: "one", more: #", "userInfo": {"is": 1}"#)
        try write("one.json", "// a comment\n\(noted)")
        #expect(try await add(archive, "one.json").status == 0)
        try write("one.json", Self.recipe("aurora", file: "two"))
        let refused = try await add(archive, "one.json", version: 2)
        #expect(refused.status == 31)
        #expect(refused.error.contains("hint: run 'stagepack package one.json "), "\(refused)")
        let packaged = try await follow(refused)
        #expect(packaged.status == 0, "\(packaged)")
        let name = packaged.output.firstMatch(of: #/(store/i/[0-9a-f]{64}|pack.tar.gz)/#)
        let added = try await add(String(try #require(name).output.0), "one.json", version: 2)
        #expect(added.status == 0, "\(added)")
    }

    @Test func anArchiveThatHasChangedSinceIsRefused() async throws {
        let archive = try await package("two.json", indexed: false)
        let other = try bytes(of: directory.path.appending(archive))
        _ = try await package("one.json", indexed: false)
        try directory.write(other, to: "pack.tar.gz", durably: false)
        let refused = try await add(archive, "one.json")
        #expect(refused.status == 31)
        #expect(
            refused.error.hasPrefix(
                "stagepack: error: 'pack.tar.gz': it has changed since it was packaged\n"
            ),
            "\(refused)"
        )
        try write("pack.tar.gz.pack.json", #"{"packRecordVersion": 2}"#)
        let unknown = try await add(archive, "one.json")
        #expect(unknown.status == 31)
        #expect(unknown.error.contains("format version 2, expected 1"), "\(unknown)")
        let packaged = try await follow(unknown)
        #expect(packaged.status == 0, "\(packaged)")
        #expect(try await add(archive, "one.json").status == 0)
    }

    /// The disk has the inodes for two files and the new archive.
    @Test(.mountNamespace)
    func anArchiveIsNotReplacedOnADiskWithoutSpaceForItsRecord() async throws {
        var full = program
        let text = """
            P='\(try Program.path)'; cd '\(directory.path)'
            mkdir disk && mount -t tmpfs -o size=8m,nr_inodes=4 none disk || exit 99
            $P package one.json -o disk/pack.tar.gz -q && cp -r disk before || exit 98
            $P package two.json -o disk/pack.tar.gz; status=$?
            diff -r disk before && ls -A disk
            exit $status
            """
        full.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text, "sh"]
        let ending = try await full.run([])
        #expect(ending.status == 40, "\(ending)")
        #expect(ending.error.contains("No space left on device\nhint: delete files"))
        #expect(ending.output == "pack.tar.gz\npack.tar.gz.pack.json\n", "\(ending)")
    }

    @Test func anArchiveWithoutARecordIsAddedWithANote() async throws {
        let archive = try await package("one.json", indexed: false)
        try directory.remove("pack.tar.gz.pack.json")
        let added = try await add(archive, "two.json")
        #expect(added.status == 0)
        #expect(
            added.error
                == "stagepack: note: there is no 'pack.tar.gz.pack.json' to compare the recipe with\n"
        )
    }

    @Test func equalContentOfTwoPacksIsOneIndexWithTwoRecipes() async throws {
        try write("two.json", Self.recipe("borealis", file: "one"))
        let first = try await package("one.json", indexed: true)
        #expect(try await package("two.json", indexed: true) == first)
        #expect(try await add(first, "one.json").status == 0)
        #expect(try await add(first, "two.json").status == 0)
        let index = directory.path.pushing(FilePath(first))
        let name = try #require(index.lastComponent)
        let record = index.removingLastComponent().appending(".\(name).pack.json")
        let written = try bytes(of: record)
        _ = try await package("one.json", indexed: true)
        #expect(try bytes(of: record) == written)
    }
}
