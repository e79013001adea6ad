import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Manifests that publishers edit and check with the built program.
@Suite(.directory)
struct ManifestEditTests: PublisherSuite {
    let directory: Directory
    let program: Program

    init() throws {
        directory = try TemporaryDirectory.required()
        // Sources are relative to the current directory.
        program = try Program(in: directory)
    }

    private func text(_ name: String) throws -> String {
        let bytes = try directory.bytes(of: FilePath(name), limit: 1 << 20)
        return String(decoding: try #require(bytes), as: UTF8.self)
    }

    /// Makes a site with a manifest without packs, and an archive at a path.
    private func publish(_ archive: String) async throws {
        try write("assets/one.txt", "one")
        try write("site/.keep", "")
        try write("dist/.keep", "")
        try write(
            "recipe.json",
            #"{"assetPackID": "aurora", "downloadPolicy": {"onDemand": {}}, "fileSelectors": [{"directory": "assets"}]}"#
        )
        #expect(try await run("package recipe.json -o \(archive) -q").status == 0)
        let create = "manifest create --application net.example -o site/manifest.json"
        #expect(try await run(create).status == 0)
    }

    private func add(_ archive: String, _ rest: String = "") async throws -> Program.Ending {
        try await run(
            "manifest add site/manifest.json \(archive) --recipe recipe.json --pack-version 1 \(rest)"
        )
    }

    @Test(arguments: [
        ("--url 'a b.tar'", "'--url': expected a URL without spaces"),
        ("--pack-version 0", "'--pack-version': expected 1 or more, found 0"),
    ])
    func wrongOptionsAreNotBlamedOnTheManifest(option: String, message: String) async throws {
        try await publish("site/a.tar")
        let words = [
            "manifest", "add", "site/manifest.json", "site/a.tar", "--recipe", "recipe.json",
        ]
        let (name, value) = (option.prefix { $0 != " " }, option.drop { $0 != " " }.dropFirst())
        let version = name == "--url" ? ["--pack-version", "1"] : []
        let ending = try await program.run(
            words + version + [String(name), String(value.filter { $0 != "'" })]
        )
        #expect(ending.status == 64)
        #expect(ending.error.contains(message), "\(ending.error)")
    }

    @Test func lintComparesArchivesBesideTheManifest() async throws {
        try await publish("site/a.tar")
        #expect(try await add("site/a.tar").status == 0)
        #expect(try await run("manifest lint site/manifest.json").status == 0)
        for content in ["two", String(repeating: "three", count: 5000)] {
            try write("assets/one.txt", content)
            let again = try await run("package recipe.json -o site/a.tar -q")
            #expect(again.status == 0)
            #expect(again.error.contains("'site/a.tar' had other content before"), "\(again)")
            let lint = try await run("manifest lint site/manifest.json")
            #expect(lint.status == 3)
            #expect(lint.output.contains("packs[0].archive"), "\(lint)")
            #expect(lint.output.contains("'a.tar' does not match the manifest"), "\(lint)")
        }
        #expect(try await run("package recipe.json -o site/a.tar -q").error == "")
    }

    @Test func aPackIsTakenOutOfAManifest() async throws {
        try await publish("site/a.tar")
        try write(
            "site/manifest.json",
            try text("site/manifest.json").replacing("{\n", with: "{\n  \"x-note\": 1,\n")
        )
        #expect(try await add("site/a.tar").status == 0)
        let misspelt = try await run("manifest remove site/manifest.json auroa")
        #expect(misspelt.status == 13, "\(misspelt)")
        #expect(misspelt.error.contains("there is no pack 'auroa'"), "\(misspelt)")
        #expect(misspelt.error.hasSuffix("hint: did you mean 'aurora'?\n"), "\(misspelt)")
        let policy = try await run("manifest set-policy site/manifest.json auroa prefetch")
        #expect(policy.error.hasSuffix("hint: did you mean 'aurora'?\n"), "\(policy)")
        let other = try await run("manifest remove site/manifest.json oceans")
        #expect(other.error.hasSuffix("hint: the manifest has aurora\n"), "\(other)")
        let removed = try await run("manifest remove site/manifest.json aurora")
        let output = "aurora: removed from site/manifest.json, revision 3\n"
        #expect(removed == Program.Ending(status: 0, output: output, error: ""))
        let manifest = try Manifest(json: Array(try text("site/manifest.json").utf8))
        #expect(manifest.packs.isEmpty)
        #expect(manifest.revision == 3)
        #expect(try text("site/manifest.json").contains("x-note"))
        let again = try await run("manifest remove site/manifest.json aurora")
        #expect(again.status == 13 && !again.error.contains("hint: "), "\(again)")
        #expect(try Manifest(json: Array(try text("site/manifest.json").utf8)) == manifest)
    }

    @Test func temporaryFilesOfKilledCommandsAreRemoved() async throws {
        try await publish("site/a.tar")
        let left = [
            "site/.manifest.json.3mxh1urkd3nsa.tmp", "site/.a.tar.pack.json.3mxh1urkd3nsa.tmp",
        ]
        for name in left { try write(name, "{") }
        #expect(try await add("site/a.tar").status == 0)
        #expect(try directory.status(FilePath(left[0])) == nil)
        try write("assets/one.txt", "two")
        #expect(try await run("package recipe.json -o site/a.tar -q").status == 0)
        #expect(try directory.status(FilePath(left[1])) == nil)
    }

    /// Sets permissions that no umask gives a new file.
    private func share(_ name: FilePath) throws {
        let status = unsafe chmod(directory.path.pushing(name).string, 0o660)
        try #require(status == 0)
    }

    @Test func aReplacedFileKeepsItsPermissions() async throws {
        try await publish("site/a.tar")
        try share("site/manifest.json")
        #expect(try await add("site/a.tar").status == 0)
        #expect(try directory.status("site/manifest.json")?.mode == 0o660)
        #expect(try await run("keys generate k.pem --unencrypted").status == 0)
        #expect(try await run("keys init site/manifest.json --key k.pem").status == 0)
        try share("site/metadata/timestamp.json")
        let refreshed = try await run("refresh site/manifest.json --key k.pem --force")
        #expect(refreshed.status == 0, "\(refreshed)")
        #expect(refreshed.output.contains("(new)"), "\(refreshed)")
        #expect(try directory.status("site/metadata/timestamp.json")?.mode == 0o660)
    }

    /// Without the right to keep the owner and the group, root's own group gets no access.
    @Test(.root("only root gives files to other users"), arguments: [true, false])
    func aFileThatRootReplacesKeepsItsOwnerAndGroup(mayChangeOwners: Bool) async throws {
        try await publish("site/a.tar")
        let paths: [FilePath] = ["site/manifest.json", "site/a.tar"]
        for path in paths {
            let status = unsafe chown(directory.path.pushing(path).string, 61_234, 61_235)
            try #require(status == 0)
            try share(path)
        }
        var publisher = program
        if !mayChangeOwners {
            publisher.wrapper =
                ["/usr/bin/setpriv", "--bounding-set=-chown", "--inh-caps=-chown"] + program.wrapper
        }
        try write("assets/one.txt", "two")
        let options = "--recipe recipe.json --pack-version 1"
        for command in [
            "package recipe.json -o site/a.tar -q",
            "manifest add site/manifest.json site/a.tar \(options)",
        ] {
            let words = command.split(separator: " ").map(String.init)
            let ending = try await publisher.run(words)
            #expect(ending.status == 0, "\(ending)")
        }
        for path in paths {
            let status = try #require(try directory.status(path))
            #expect(status.owner == (mayChangeOwners ? 61_234 : geteuid()), "\(path)")
            #expect(status.group == (mayChangeOwners ? 61_235 : getegid()), "\(path)")
            #expect(status.mode == (mayChangeOwners ? 0o660 : 0o600), "\(path)")
        }
    }

    @Test func aRemovalIsSigned() async throws {
        try await publish("site/a.tar")
        #expect(try await add("site/a.tar").status == 0)
        #expect(try await run("keys generate k.pem --unencrypted").status == 0)
        #expect(try await run("keys init site/manifest.json --key k.pem").status == 0)
        let unsigned = try await run("manifest remove site/manifest.json aurora")
        #expect(unsigned.status == 0)
        #expect(unsigned.error.contains("hint: stagepack sign site/manifest.json"), "\(unsigned)")
        #expect(try await add("site/a.tar", "--key k.pem").status == 0)
        let signed = try await run("manifest remove site/manifest.json aurora --key k.pem")
        #expect(signed.status == 0, "\(signed)")
        let lint = try await run("manifest lint site/manifest.json")
        #expect(!lint.output.contains("metadata"), "\(lint)")
    }

    /// Clients resolve a relative URL against the manifest's.
    @Test func anArchiveThatIsElsewhereIsAWarning() async throws {
        try await publish("dist/a.tar")
        let added = try await add("dist/a.tar")
        #expect(added.status == 0)
        let warning = """
            stagepack: warning: 'dist/a.tar' is not in the manifest's directory, where clients will ask for 'a.tar'
            hint: move it there, or pass its URL with --url

            """
        #expect(added.error == warning)
        let lint = try await run("manifest lint site/manifest.json")
        #expect(lint.status == 0)
        #expect(lint.output.contains("packs[0].archive.url: 'a.tar' does not exist"), "\(lint)")
        #expect(try await run("manifest lint site/manifest.json --strict").status == 3)
        // The published manifest has other files beside it than this copy, so none is checked.
        let elsewhere = "manifest lint site/manifest.json --manifest-url https://h.example/m.json"
        #expect(try await run(elsewhere).output == "")
        #expect(try await run("package recipe.json -o site/a.tar -q").status == 0)
        #expect(try await run("manifest lint site/manifest.json --strict").output == "")
        #expect(try await add("dist/a.tar", "--url https://h.example/a.tar").error == "")
    }

    @Test func aMemberThatIsMisspeltIsAskedFor() async throws {
        try await publish("site/a.tar")
        #expect(try await add("site/a.tar").status == 0)
        // The manifest has 'baseURL' instead of 'baseURLs', and 'userinfo' instead of 'userInfo'.
        try write(
            "site/manifest.json",
            try text("site/manifest.json")
                .replacing("{\n  \"man", with: "{\n  \"baseURL\": [],\n  \"man")
                .replacing("\"archive\": {", with: "\"userinfo\": 1,\n      \"archive\": {")
        )
        let question = "it is ignored, as an unknown member: did you mean"
        let lint = try await run("manifest lint site/manifest.json")
        #expect(lint.status == 0)
        let expected = """
            site/manifest.json: warning: baseURL: \(question) 'baseURLs'?
            site/manifest.json: warning: packs[0].userinfo: \(question) 'userInfo'?

            """
        #expect(lint.output == expected)
        #expect(try await run("manifest lint site/manifest.json --strict").status == 3)
        let added = try await add("site/a.tar")
        #expect(added.status == 0)
        #expect(
            added.error.hasPrefix(
                "stagepack: warning: site/manifest.json: baseURL: \(question) 'baseURLs'?\n"
            ),
            "\(added)"
        )
    }

    @Test func aFileThatIsNeitherAnArchiveNorAnIndexIsRefused() async throws {
        try await publish("site/a.tar")
        try write("site/a.pack", "content")
        let ending = try await add("site/a.pack", "-q")
        #expect(ending.status == 64)
        let error = """
            stagepack: error: 'site/a.pack' is neither the index of a pack nor an archive by its name
            hint: pass --format for an archive with another name, or name an index of a store: a file of its folder 'i' with a name of 64 digits

            """
        #expect(ending.error == error)
    }

    @Test(arguments: ["manifest lint", "manifest remove"])
    func aURLInThePlaceOfAFileIsNamed(command: String) async throws {
        let words = command == "manifest remove" ? " aurora" : ""
        let ending = try await run("\(command) https://h.example/manifest.json\(words)")
        #expect(ending.status == 64, "\(ending)")
        #expect(ending.error.contains("'https://h.example/manifest.json'"), "\(ending)")
        #expect(
            ending.error.contains("hint: name the manifest's file on this machine"),
            "\(ending)"
        )
    }

    /// A name with the extension of another format misleads clients and people.
    @Test(arguments: ["a.zip", "a.7z", "a.tar.bz2"])
    func aFormatThatIsNotMadeIsRefused(name: String) async throws {
        try await publish("site/a.tar")
        let refused = try await run("package recipe.json -o \(name)")
        #expect(refused.status == 64, "\(refused)")
        #expect(refused.error.contains("found '\(name)'"), "\(refused)")
        #expect(try directory.status(FilePath(name)) == nil)
        #expect(try await run("package recipe.json -o \(name) --format tar -q").status == 0)
        #expect(try await run("package recipe.json -o a.pack -q").status == 0)
    }

    /// Clients refuse a timestamp whose version is lower than the one that they know.
    @Test func aLostTimestampIsReplacedByANewerOne() async throws {
        try await publish("site/a.tar")
        #expect(try await run("keys generate k.pem --unencrypted").status == 0)
        #expect(try await run("keys init site/manifest.json --key k.pem").status == 0)
        #expect(try await add("site/a.tar", "--key k.pem").status == 0)
        let force = "refresh site/manifest.json --key k.pem --force"
        #expect(try await run(force).status == 0)
        #expect(try text("site/metadata/timestamp.json").contains("\"version\":3"))
        for command in ["refresh", "sign"] {
            // With hourly renewals, the lost one had a higher version than its snapshot.
            let metadata = try #require(try directory.directory("site/metadata"))
            try metadata.remove("timestamp.json")
            let signed = try await run("\(command) site/manifest.json --key k.pem")
            #expect(signed.status == 0, "\(signed)")
            let timestamp = try text("site/metadata/timestamp.json")
            #expect(timestamp.contains("\"version\":1003"), "\(command): \(timestamp)")
            let lint = try await run("manifest lint site/manifest.json")
            #expect(lint == Program.Ending(status: 0, output: "", error: ""))
        }
    }
}
