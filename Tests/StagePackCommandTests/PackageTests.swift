import FoundationEssentials
import Glibc
import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Tests from a recipe to a staged pack, with the built program.
@Suite(.server, .directory)
struct PackageTests: PublisherSuite {
    /// The output of `package --json`.
    private struct Package: Decodable, Equatable {
        var pack, file, format, sha256: String
        var size, installedSize, fileCount, directoryCount: Int
    }

    private struct Edit: Decodable, Equatable {
        var manifest, pack, policy: String
        var revision, version: Int
        var isChanged: Bool
    }

    let directory: Directory
    let program: Program

    init() throws {
        directory = try TemporaryDirectory.required()
        // Sources are relative to the current directory.
        program = try Program(in: directory)
    }

    private func recipe(_ selectors: String) -> String {
        """
        { "assetPackID": "aurora", // a comment
          "downloadPolicy": { "essential": { "installationEventTypes": ["firstInstallation"] } },
          "fileSelectors": [ \(selectors) ], }
        """
    }

    private func decode<Value: Decodable>(_ type: Value.Type, _ text: String) throws -> Value {
        try JSONDecoder().decode(type, from: Data(text.utf8))
    }

    private func tree() throws {
        try write("assets/one.txt", "one")
        try write("assets/deep/two.txt", "two!")
        try write("build/tool", "#!/bin/sh\n")
        let tool = directory.path.appending("build/tool").string
        let status = unsafe chmod(tool, 0o755)
        try #require(status == 0)
        try directory.createLink("assets/link", to: "deep/two.txt")
        try write(
            "recipe.json",
            recipe(
                #"{"directory": "assets"}, {"fileSource": "build/tool", "fileDestination": "go"}"#
            )
        )
    }

    @Test(arguments: [
        (["-o", "-"], "'-o' names a file"),
        (["-o", "a.tar.gz", "--format", "tar.zst"], "contradicts the name 'a.tar.gz'"),
        (["-o", "a.tar.zst", "--indexed"], "names a store, which is a directory"),
        (["-o", "a.tar", "--evaluate"], "'--evaluate' writes nothing"),
    ])
    func outputsOfOtherCommandLinesAreRefused(options: [String], message: String) async throws {
        let ending = try await program.run(["package", "recipe.json"] + options)
        #expect(ending.status == 64)
        #expect(ending.error.contains(message), "\(ending.error)")
    }

    @Test func anEvaluationListsTheSelectedFilesAndWritesNothing() async throws {
        try tree()
        let ending = try await program.run(["package", "recipe.json", "--evaluate"])
        #expect(
            ending
                == Program.Ending(
                    status: 0,
                    output: """
                            assets/
                            assets/deep/
                         4  assets/deep/two.txt
                            assets/link -> deep/two.txt
                         3  assets/one.txt
                        10  go* (from build/tool)
                        17  total: 4 files, 17 B

                        """,
                    error: ""
                )
        )
        let names = try directory.entries().map(\.path.string).sorted()
        #expect(names == ["assets", "build", "recipe.json"])
    }

    /// Returns the lines that an evaluation prints to standard error.
    private func warnings(_ options: String...) async throws -> [Substring] {
        let ending = try await program.run(["package", "recipe.json", "--evaluate"] + options)
        #expect(ending.status == 0, "\(ending)")
        return ending.error.split(separator: "\n")
    }

    /// An icon theme may have hundreds of names that differ in case only.
    @Test func ofManyWarningsOfAKindTheFirstOnesArePrinted() async throws {
        for name in ["a", "b", "c", "d", "e", "f"] {
            try write("assets/\(name)", name)
            try write("assets/\(name.uppercased())", name)
        }
        try write("recipe.json", recipe(#"{"directory": "assets"}"#))
        let text = "3 more names that are one where the file system ignores case"
        let short = try await warnings()
        #expect(short.count == 4)
        #expect(short.last == "stagepack: warning: \(text); '--verbose' prints them")
        #expect(short.first?.contains("are one name where the file system ignores case") == true)
        #expect(try await warnings("--quiet") == short)
        let all = try await warnings("--verbose").filter { $0.contains("are one name where") }
        #expect(all.count == 6)
    }

    @Test(arguments: [["-o", "a.tar"], ["-o", "store", "--indexed"], ["--evaluate"]])
    func warningsOfTheRecipeAreInTheResult(options: [String]) async throws {
        try tree()
        try directory.createLink("assets/nowhere", to: "missing.txt")
        let ending = try await program.run(["package", "recipe.json", "--json"] + options)
        #expect(ending.status == 0 && ending.error.isEmpty, "\(ending)")
        struct Result: Decodable { var warnings: [String] }
        let warning =
            "the link 'assets/nowhere' leads to 'missing.txt', which the pack does not have"
        #expect(try decode(Result.self, ending.output).warnings == [warning])
    }

    /// The recipe comes in two parts, with more bytes than one read takes.
    @Test func aRecipeCanBeAPipe() async throws {
        try tree()
        let file = try await program.run(["package", "recipe.json", "-o", "file.tar", "--json"])
        #expect(file.status == 0, "\(file)")
        var piped = program
        piped.wrapper = [
            "/bin/sh", "-c",
            #"cd "$0" && { cat recipe.json; head -c 9000 /dev/zero | tr '\0' ' '; } | exec "$@""#,
            directory.path.string, try Program.path.string,
        ]
        let arguments = ["package", "/dev/stdin", "-o", "pipe.tar", "--json"]
        let pipe = try await piped.run(arguments)
        #expect(pipe.status == 0, "\(pipe)")
        let digests = try [file, pipe].map { try decode(Package.self, $0.output).sha256 }
        #expect(digests[0] == digests[1])
    }

    @Test(arguments: [["-o", "assets/aurora.tar"], ["-o", "assets", "--indexed"]])
    func aPackDoesNotContainItsOwnArchive(options: [String]) async throws {
        try tree()
        #expect(try await program.run(["package", "recipe.json"] + options).status == 0)
        let again = try await program.run(["package", "recipe.json"] + options)
        #expect(again.status == 31, "\(again)")
        #expect(again.error.hasPrefix("stagepack: error: recipe.json: it selects 'assets/"))
        #expect(again.error.contains("which this command writes\nhint: write it elsewhere"))
        let selectors = #"{"directory": "assets"}, {"fileExclusion": "assets/aurora.tar*"}"#
        try write("recipe.json", recipe(selectors))
        let excluded = try await program.run(["package", "recipe.json"] + options)
        #expect((excluded.status == 0) == options.contains("assets/aurora.tar"), "\(excluded)")
    }

    /// The commands for manifests follow links, too.
    @Test func aLinkToTheArchiveIsFollowed() async throws {
        try tree()
        try write("site/aurora 1.tar", "old")
        try directory.createLink("latest.tar", to: "site/aurora 1.tar")
        let made = try await program.run(["package", "recipe.json", "-o", "latest.tar", "--json"])
        #expect(made.status == 0, "\(made)")
        #expect(try directory.status("latest.tar")?.kind == .link)
        let archive = try bytes(of: directory.path.pushing("site/aurora 1.tar"))
        let package = try decode(Package.self, made.output)
        #expect(package.sha256 == Digest(of: archive).description)
        #expect(try directory.status("site/aurora 1.tar.pack.json")?.kind == .file)
        let create = ["manifest", "create", "--application", "net.example", "-o", "m.json"]
        #expect(try await program.run(create).status == 0)
        let added = try await program.run([
            "manifest", "add", "m.json", "latest.tar", "--recipe", "recipe.json",
            "--pack-version", "1",
        ])
        #expect(added.status == 0 && !added.error.contains("there is no '"), "\(added)")
    }

    /// A link without an ending of its own, as `latest`.
    @Test func theTargetOfALinkKeepsItsFormat() async throws {
        try tree()
        try write("aurora.tar.gz", "old")
        try directory.createLink("latest", to: "aurora.tar.gz")
        let made = try await program.run(["package", "recipe.json", "-o", "latest"])
        #expect(made.status == 0, "\(made)")
        #expect(try bytes(of: directory.path.pushing("aurora.tar.gz")).starts(with: [0x1f, 0x8b]))
    }

    /// Programs such as git-annex move each file elsewhere, and put a link in its place.
    @Test func aRecordThatIsALinkItselfIsFound() async throws {
        try tree()
        let made = try await program.run(["package", "recipe.json", "-o", "aurora.tar"])
        #expect(made.status == 0, "\(made)")
        for (name, moved) in [("aurora.tar", "1"), ("aurora.tar.pack.json", "2")] {
            let (old, new) = (FilePath.Component(known: name), FilePath.Component(known: moved))
            try directory.rename(old, to: new, in: directory)
            try directory.createLink(FilePath(name), to: moved)
        }
        let create = ["manifest", "create", "--application", "net.example", "-o", "m.json"]
        #expect(try await program.run(create).status == 0)
        let added = try await program.run([
            "manifest", "add", "m.json", "aurora.tar", "--recipe", "recipe.json",
            "--pack-version", "1",
        ])
        #expect(added.status == 0 && !added.error.contains("there is no '"), "\(added)")
    }

    @Test func aLinkToNoFileIsNotReplaced() async throws {
        try tree()
        try directory.createLink("latest.tar", to: "none.tar")
        let refused = try await program.run(["package", "recipe.json", "-o", "latest.tar"])
        #expect(refused.status == 31, "\(refused)")
        let message = "cannot open 'latest.tar': No such file or directory"
        #expect(refused.error.contains(message), "\(refused)")
        #expect(try directory.status("latest.tar")?.kind == .link)
        #expect(try directory.status("none.tar") == nil)
    }

    /// As `/dev/stdout`, which root could replace.
    @Test func aLinkToStandardOutputIsNotReplaced() async throws {
        try tree()
        try directory.createLink("stdout", to: "/proc/self/fd/1")
        var redirected = program
        redirected.wrapper = [
            "/bin/sh", "-c", #"cd "$0" && exec "$@" >out"#, directory.path.string,
            try Program.path.string,
        ]
        let made = try await redirected.run(["package", "recipe.json", "-o", "stdout"])
        #expect(made.status == 0, "\(made)")
        #expect(try directory.status("stdout")?.kind == .link)
        let archive = try bytes(of: directory.path.appending("out"))
        #expect(archive.prefix(4) == [0x28, 0xB5, 0x2F, 0xFD])
        // By now, the link leads to the replaced file, which has no name.
        #expect(try directory.status("out.pack.json")?.kind == .file)
    }

    @Test(arguments: ["tar.zst", "tar.gz", "tar.xz", "tar"])
    func aPackagedPackIsStaged(format: String) async throws {
        try tree()
        try write("site/.keep", "")
        let file = "site/aurora 1.\(format)"
        let made = try await program.run(["package", "recipe.json", "-o", file, "--json"])
        #expect(made.error == "")
        let archive = try bytes(of: directory.path.pushing(FilePath(file)))
        #expect(
            try decode(Package.self, made.output)
                == Package(
                    pack: "aurora",
                    file: file,
                    format: format,
                    sha256: Digest(of: archive).description,
                    size: archive.count,
                    installedSize: 17,
                    fileCount: 4,
                    directoryCount: 2
                )
        )
        let server = TestServer.current
        let create = [
            "manifest", "create", "--application", "net.example.app", "-o", "site/manifest.json",
        ]
        #expect(try await program.run(create).status == 0)
        #expect(try await program.run(create).status == 31)
        let add = [
            "manifest", "add", "site/manifest.json", file, "--recipe", "recipe.json",
            "--pack-version", "1", "--json",
        ]
        let edit = Edit(
            manifest: "site/manifest.json",
            pack: "aurora",
            policy: "essential",
            revision: 2,
            version: 1,
            isChanged: true
        )
        let added = try await program.run(add)
        #expect(try decode(Edit.self, added.output) == edit, "\(added.error)")
        let manifest = try bytes(of: directory.path.pushing("site/manifest.json"))
        let offered = try #require(try Manifest(json: manifest).packs.first)
        #expect(offered.archive?.url == "aurora%201.\(format)" && offered.directoryCount == 2)
        server.answer("/manifest.json", with: .content(manifest))
        server.answer("/aurora%201.\(format)", with: .content(archive))
        let lint = ["manifest", "lint", "site/manifest.json", "--strict", "--online"]
        let url = server.url("/manifest.json")
        let clean = try await program.run(lint + ["--manifest-url", url])
        #expect(clean == Program.Ending(status: 0, output: "", error: ""))
        let location = directory.path.appending("container")
        let staged = try await program.run([
            "prefetch", "--manifest", url, "--container", location.string,
        ])
        #expect(staged.status == 0, "\(staged.error)")
        let path = try await program.run(["path", "aurora", "--container", location.string])
        let content = try Directory.open(FilePath(String(path.output.dropLast())))
        #expect(try content.status("go")?.mode == 0o755)
        #expect(try text(of: content.path.pushing("assets/link")) == "two!")
        #expect(try text(of: content.path.pushing("assets/one.txt")) == "one")
    }

    @Test func aManifestIsKept() async throws {
        try tree()
        _ = try await program.run(["package", "recipe.json", "-q"])
        let created = try await program.run(["manifest", "create", "--application", "net.example"])
        try write("manifest.json", created.output)
        func add(_ version: String) async throws -> Program.Ending {
            try await program.run([
                "manifest", "add", "manifest.json", "aurora.tar.zst", "--recipe", "recipe.json",
                "--pack-version", version, "--url", "https://cdn.example.org/aurora",
            ])
        }
        #expect(
            try await add("2").output
                == "aurora: version 2, essential: in manifest.json, revision 2\n"
        )
        #expect(
            try await add("2").output
                == "aurora: version 2, essential: as it was in manifest.json, revision 2\n"
        )
        #expect(
            try await add("1")
                == Program.Ending(
                    status: 12,
                    output: "",
                    error: """
                        stagepack: error: manifest.json: pack 'aurora': expected a version of 2 or \
                        more, found 1
                        hint: raise --pack-version: a version never goes back

                        """
                )
        )
        let set = ["manifest", "set-policy", "manifest.json"]
        #expect(
            try await program.run(set + ["aurora", "prefetch", "--event", "subsequentUpdate"])
                .output
                == "aurora: version 2, prefetch: in manifest.json, revision 3\n"
        )
        #expect(try await program.run(set + ["no", "onDemand"]).status == 13)
        #expect(
            try await program.run(set + ["aurora", "onDemand", "--event", "firstInstallation"])
                .status == 64
        )
        let manifest = try Manifest(json: bytes(of: directory.path.appending("manifest.json")))
        #expect(manifest.packs.map(\.policy) == [.prefetch([.subsequentUpdate])])
        #expect(try directory.entries().allSatisfy { !$0.path.string.hasSuffix(".tmp") })
    }

    @Test func packsThatAreAddedConcurrentlyAreAllInTheManifest() async throws {
        try tree()
        _ = try await program.run(["package", "recipe.json", "-q"])
        let created = try await program.run(["manifest", "create", "--application", "net.example"])
        try write("manifest.json", created.output)
        // Without this file, the archive seems to be another program's.
        try directory.remove("aurora.tar.zst.pack.json")
        let names = (0..<12).map { "pack-\($0)" }
        let recipe = recipe(#"{"directory": "assets"}"#)
        try await withThrowingTaskGroup(of: Program.Ending.self) { group in
            for name in names {
                try write("\(name).json", recipe.replacing("aurora", with: name))
                group.addTask {
                    try await pollForValue("'\(name)' is never added") {
                        let ending = try await program.run([
                            "manifest", "add", "manifest.json", "aurora.tar.zst",
                            "--recipe", "\(name).json", "--pack-version", "1",
                        ])
                        // On a busy machine, the others may hold the lock for longer than a command waits for it.
                        return ending.status == 42 ? nil : ending
                    }
                }
            }
            for try await ending in group { #expect(ending.status == 0, "\(ending.error)") }
        }
        let manifest = try Manifest(json: bytes(of: directory.path.appending("manifest.json")))
        #expect(manifest.packs.map(\.id.text).sorted() == names.sorted())
        #expect(manifest.revision == 1 + names.count)
    }

    @Test(arguments: [
        (
            #"{"file": "no"}"#, 31 as Int32,
            "recipe.json: fileSelectors[0]: file 'no' selects nothing"
        ),
        (#"{"fil": "no"}"#, 11, "recipe.json: fileSelectors[0].fil: expected a member of "),
        (
            #"{"directory": "assets"}, {"fileSource": "recipe.json", "fileDestination": "assets/link"}"#,
            31, "recipe.json: 'assets/link' has two sources: "
        ),
        ("} ", 11, "recipe.json: not JSON: line 3, column 22: expected a value, found '}'"),
    ])
    func aWrongRecipeIsAnError(selectors: String, status: Int32, message: String) async throws {
        try tree()
        try write("recipe.json", recipe(selectors))
        let ending = try await program.run(["package", "recipe.json"])
        #expect(ending.status == status)
        #expect(ending.error.hasPrefix("stagepack: error: \(message)"), "\(ending.error)")
        #expect(try directory.entries().count == 3)
    }

    @Test(
        arguments: [
            ("none.json", 64, "No such file or directory", "name the file of a recipe; "),
            ("assets", 64, "Is a directory", "name the file of a recipe; "),
            ("wrong.json", 11, "not JSON: ", "correct it: a recipe is JSON that may have comments"),
        ] as [(String, Int32, String, String)]
    )
    func aRecipeThatIsNoneHasAHint(
        name: String,
        status: Int32,
        message: String,
        hint: String
    ) async throws {
        try tree()
        try write("wrong.json", "{]")
        let ending = try await program.run(["package", name])
        #expect(ending.status == status, "\(ending)")
        #expect(ending.error.contains(message), "\(ending)")
        #expect(ending.error.contains("\nhint: \(hint)"), "\(ending)")
    }

    @Test func anOutputBelowAFileHasAHint() async throws {
        try tree()
        let ending = try await program.run(["package", "recipe.json", "-o", "recipe.json/a.tar"])
        #expect(ending.status == 31, "\(ending)")
        let hint = "there is a file instead of a directory: move it, or name another path"
        #expect(ending.error.hasSuffix("': Not a directory\nhint: \(hint)\n"), "\(ending)")
    }

    @Test func theTemplateIsWrittenOnceAndPackaged() async throws {
        try write("assets/one.txt", "one")
        #expect(try await program.run(["template", "-o", "recipe.json"]).status == 0)
        let again = try await program.run(["template", "-o", "recipe.json"])
        #expect(again.status == 31)
        #expect(
            again.error == """
                stagepack: error: cannot create 'recipe.json': File exists
                hint: name a file that does not exist

                """
        )
        let made = try await program.run(["package", "recipe.json"])
        #expect(made.status == 0, "\(made.error)")
        #expect(
            try bytes(of: directory.path.appending("my-pack.tar.zst")).prefix(4) == [
                0x28, 0xB5, 0x2F, 0xFD,
            ]
        )
    }

    @Test func anInterruptedArchiveLeavesNothing() async throws {
        try write("recipe.json", recipe(#"{"file": "large"}"#))
        // This file takes longer to read than any delay of this test, and no disk space.
        try directory.file(creating: "large").truncate(to: 1 << 40)
        let folder = directory
        let ending = try await program.run(["package", "recipe.json"]) { running in
            try await poll {
                try folder.entries().contains { $0.path.string.hasSuffix(".tmp") }
            }
            // timeout(1) sends its signal twice.
            running.send(SIGINT)
            running.send(SIGINT)
        }
        #expect(ending.status == 130)
        #expect(ending.error == "stagepack: error: packaging was cancelled\n")
        #expect(try directory.entries().map(\.path.string).sorted() == ["large", "recipe.json"])
    }

    @Test func lintSaysWhatAServerDoes() async throws {
        let server = TestServer.current
        let pack = try SamplePack.small(.aurora)
        let manifest = try World().manifest(of: [pack])
        try write("manifest.json", String(decoding: manifest, as: UTF8.self))
        server.answer(pack.path, with: Answer.content(pack.archive).tagged(nil).ignoringRanges())
        let lint = [
            "manifest", "lint", "manifest.json", "--online", "--manifest-url", server.url("/m"),
        ]
        let ending = try await program.run(lint)
        let url = server.url(pack.path)
        #expect(
            ending
                == Program.Ending(
                    status: 0,
                    output: """
                        manifest.json: warning: packs[0].archive.url: '\(url)' does not support \
                        ranges: interrupted downloads restart
                        hint: let the server answer 'Range' with status 206
                        manifest.json: warning: packs[0].archive.url: '\(url)' has no strong \
                        validator (there is no entity tag): interrupted downloads may restart
                        hint: let the server send a strong ETag, or put the digest in the URL

                        """,
                    error: ""
                )
        )
        #expect(try await program.run(lint + ["--strict"]).status == 3)
        #expect(try await program.run(lint + ["--offline"]).status == 75)
    }

    /// Archives with the same fault are reported to people as one finding.
    @Test func lintNamesEachCauseOnce() async throws {
        let server = TestServer.current
        let pack = try SamplePack.small(.aurora)
        let other = try SamplePack.small(try PackID("borealis"))
        let both = try World().manifest(of: [pack, other])
        try write("both.json", String(decoding: both, as: UTF8.self))
        server.answer(pack.path, with: .status(404))
        server.answer(other.path, with: .status(404))
        let missing = try await program.run(
            ["manifest", "lint", "both.json", "--online", "--manifest-url", server.url("/m")]
        )
        let text = """
            both.json: error: packs[0].archive.url: '\(server.url(pack.path))' is answered with status 404; the same for \
            packs[1].archive.url
            hint: upload it before the manifest

            """
        #expect(missing == Program.Ending(status: 3, output: text, error: ""))
        let relative = try await program.run(["manifest", "lint", "both.json", "--online"])
        #expect(
            relative.output.hasPrefix(
                "both.json: error: packs[0].archive.url: '\(pack.path.dropFirst())' depends on the URL of the "
                    + "manifest; the same for packs[1].archive.url\nhint: pass --manifest-url"
            ),
            "\(relative)"
        )
        let wrong = try await program.run([
            "manifest", "lint", "both.json", "--manifest-url", "127.0.0.1:8480/manifest.json",
        ])
        #expect(wrong.status == 64 && wrong.error.contains("--manifest-url: "), "\(wrong)")
    }
}
