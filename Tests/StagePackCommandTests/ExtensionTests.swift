import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Downloader extensions in the life of an application: the packs that they request are staged.
@Suite(.server, .directory, .mountNamespaceIfRoot)
struct ExtensionTests {
    /// Packs with the publisher's notes for the sample extension.
    private func packs() throws -> [SamplePack] {
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        var packs: [SamplePack] = [
            try .small(try PackID("title"), policy: .essential(events)),
            try .small(try PackID("cinema"), policy: .essential(events)),
            try .small(try PackID("low-detail"), policy: .essential(events)),
            try .small(try PackID("voices"), policy: .prefetch(events)),
        ]
        packs[1].pack.userInfo = #"{"firstScreen":false}"#
        packs[2].pack.userInfo = #"{"quality":"sd"}"#
        return packs
    }

    @Test func theSampleDecidesInsteadOfPolicies() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let sample = URL(filePath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "Examples/downloader-extension.py")
        installed.registration.downloaderExtension = .init(path: sample.path)
        try installed.install()

        let plan = try await installed.run("plan", "--app", "net.example.wallpaper", "--json")
        #expect(plan.status == 0)
        #expect(!FileStatus.exists(installed.container))

        let hook = try await installed.run("prefetch", "--all", "--hook")
        #expect(hook.status == 0)
        #expect(
            hook.output == HookTests.start
                + "stagepack: net.example.wallpaper: 1 staged (20.2 kB)\n"
        )
        #expect(try installed.staged() == ["title": 1])

        let timer = try await installed.run("prefetch", "--all", "--event", "periodic", "--quiet")
        #expect(timer == Program.Ending(status: 0, output: "", error: ""))
        #expect(try installed.staged() == ["title": 1, "cinema": 1, "voices": 1])
        let why = try await installed.run("why", "low-detail")
        #expect(
            why.output.contains("left, the application's downloader extension did not ask for it")
        )
    }

    @Test func aFileIsHandedToTheExtensionWhichKeepsIt() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let news = Array("news of the day\n".utf8)
        installed.world.server.answer("/news", with: .content(news))
        try installed.extend(
            with: """
                shared = message["container"]
                if message["kind"] == "downloads":
                    answer["downloads"] = [{
                        "identifier": "news", "url": "\(installed.world.server.url("/news"))",
                        "fileSize": \(news.count),
                        "applicationGroup": message["applicationGroup"],
                        "headers": {"X-Reader": "aurora"}}]
                elif message["kind"] == "finished":
                    os.rename(message["file"], os.path.join(shared, "news.txt"))
                """
        )
        let hook = try await installed.run("prefetch", "--all", "--hook")
        #expect(hook.status == 0)
        #expect(try installed.history()?.pending == [.install])
        let ending = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(ending.error == "")
        #expect(ending.status == 0)
        #expect(try installed.history()?.pending == [])
        #expect(ending.output.contains("0 staged, 0 up to date, 1 of 1 file"))
        let shared = try Directory.open(installed.container.appending("shared"))
        #expect(try shared.file(reading: "news.txt")?.readAll(limit: 100) == news)
        let left = try Directory.open(installed.container.appending("extension")).entries()
        #expect(left.isEmpty)
    }

    @Test func theExtensionAnswersAServerThatWantsToKnowWhoAsks() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let server = installed.world.server
        server.answer("/news", with: .status(401), .content(Array("news".utf8)))
        try installed.extend(
            with: """
                if message["kind"] == "downloads":
                    answer["downloads"] = [{
                        "identifier": "news", "url": "\(server.url("/news"))",
                        "fileSize": 4, "applicationGroup": message["applicationGroup"]}]
                elif message["kind"] == "challenge":
                    assert message["challenge"]["method"] == "basic"
                    answer["disposition"] = "useCredential"
                    answer["user"] = "ada"
                    answer["password"] = "lovelace"
                """
        )
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 0)
        let fields = server.requests(for: "/news").map { $0["Authorization"] }
        #expect(fields == [nil, "Basic YWRhOmxvdmVsYWNl"])
    }

    @Test func aFileOfAnotherSizeIsAnErrorThatTheExtensionReceives() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        installed.world.server.answer("/news", with: .content(Array("longer than said".utf8)))
        try installed.extend(
            with: """
                if message["kind"] == "downloads":
                    answer["downloads"] = [{
                        "identifier": "news", "url": "\(installed.world.server.url("/news"))",
                        "fileSize": 4, "applicationGroup": message["applicationGroup"]}]
                elif message["kind"] == "failed":
                    with open(os.path.join(message["container"], "failed"), "w") as file:
                        file.write(message["error"]["message"])
                    answer["downloads"] = []
                """
        )
        let ending = try await installed.run("prefetch", "--all", "--attempts", "1")
        #expect(ending.status == 22)
        #expect(ending.error.contains("file 'news': "))
        #expect(FileStatus.exists(installed.container.appending("shared/failed")))
    }

    @Test func itsFilesAreLeftOnceItsRegistrationIsRemoved() async throws {
        var mine = try await Installed()
        try mine.world.publish([])
        let server = mine.world.server
        try mine.extend(
            with: """
                if message["kind"] == "downloads":
                    answer["downloads"] = [{
                        "identifier": str(number), "url": "\(server.url("/"))%d" % number,
                        "fileSize": 4, "applicationGroup": message["applicationGroup"]}
                        for number in range(3)]
                """
        )
        let installed = mine
        let released = Gate()
        defer { released.open() }
        let paths = Set((0..<3).map { "/\($0)" })
        for path in paths {
            let file = Answer.content(Array("file".utf8))
            server.answer(path, with: file.waiting(for: released))
        }
        let run = try await installed.world.program.run(["prefetch", "--all"]) { _ in
            try await poll("no file is downloaded") {
                server.requests.contains { paths.contains($0.target) }
            }
            try installed.uninstall()
            released.open()
        }
        #expect(run.error.contains("its registration was changed or removed"), "\(run)")
        #expect(server.requests.count { paths.contains($0.target) } == 1)
    }

    /// Faulty extensions, and the message that names the fault.
    private static let bad: [(text: String, message: String)] = [
        ("sys.exit('the list is empty')", "ended with status 1: the list is empty"),
        ("os.abort()", "was ended by signal 6"),
        ("print('rubbish')", "gave no answer that is valid: "),
        (#"answer["downloads"] = [{"pack": "volcanoes"}]"#, "may not have 'volcanoes': "),
        (
            #"answer["downloads"] = [{"pack": "title"}, {"pack": "title"}]"#,
            "may not have 'title': expected an identifier of its own"
        ),
    ]

    @Test(arguments: bad)
    func anExtensionThatFailsIsNamedAndPoliciesDecide(
        fault: (text: String, message: String)
    ) async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        try installed.extend(with: fault.text)
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 15)
        #expect(ending.error.contains("/program/choose' \(fault.message)"))
        let staged = ["title": 1, "cinema": 1, "low-detail": 1, "voices": 1]
        #expect(try installed.staged() == staged)
        let hook = try await installed.run("prefetch", "--all", "--hook")
        #expect(hook.status == 0)
        #expect(hook.output.contains("/program/choose' \(fault.message)"))
        #expect(hook.output.split(separator: "\n").count == 2)
    }

    /// More combining characters in a row than a record or a message may have.
    @Test func theLastWordsOfAnExtensionDamageNoHistory() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let words = "sys.stderr.buffer.write(('a' + chr(0x301) * 1500).encode()); sys.exit(1)"
        try installed.extend(with: words)
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 15)
        let message = try #require(try installed.history()?.lastRun?.problem?.message)
        let marks = String(repeating: "\u{301}", count: 30)
        #expect(message.hasSuffix("ended with status 1: a\(marks)…"))
    }

    @Test(.apart) func theDeadlineOfAHookEndsAnExtensionThatHangs() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        try installed.extend(with: "time.sleep(1000)")
        let start = ContinuousClock.now
        let ending = try await installed.run("prefetch", "--all", "--hook", "--deadline", "3")
        #expect(ContinuousClock.now - start < .seconds(25))
        #expect(ending.status == 0)
        #expect(ending.output.contains("the deadline passed"))
    }

    @Test func restrictionsHoldForWhatAnExtensionAsksFor() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        installed.world.server.answer("/news", with: .content(Array("news".utf8)))
        try installed.extend(
            with: """
                if message["kind"] == "downloads":
                    assert message["restrictedDownloadSizeRemaining"] == 3
                    answer["downloads"] = [{"pack": "voices"}, {
                        "identifier": "news", "url": "\(installed.world.server.url("/news"))",
                        "fileSize": 4, "applicationGroup": message["applicationGroup"]}]
                elif message["kind"] == "failed":
                    assert message["error"]["code"] == 112
                    answer["downloads"] = []
                """
        )
        var restrictions = Registration.Restrictions()
        restrictions.downloadAllowance = ByteCount(3)
        installed.registration.restrictions = restrictions
        try installed.install()
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 14)
        #expect(ending.error.contains("pack 'voices': 'downloadAllowance'"))
        #expect(ending.error.contains("file 'news': 'downloadAllowance'"))
        #expect(try installed.staged() == [:])
    }

    @Test func theExtensionAnswersAServerThatWantsToKnowWhoAsksForPacks() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let server = installed.world.server
        let refused = try packs().filter { ["title", "cinema"].contains($0.pack.id.text) }
        for pack in refused { server.answer(pack.path, with: .status(401), .content(pack.archive)) }
        try installed.extend(
            with: """
                if message["kind"] == "downloads":
                    answer["downloads"] = [{"pack": name} for name in ("title", "cinema", "voices")]
                elif message["kind"] == "challenge":
                    with open(os.path.join(message["container"], "challenges"), "a") as file:
                        file.write(message["download"]["pack"] + "\\n")
                    answer["disposition"] = "useCredential"
                    answer["user"] = "ada"
                    answer["password"] = "lovelace"
                elif message["kind"] == "failed":
                    sys.exit("told of a failure though it gave the credential")
                """
        )
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 0)
        #expect(!ending.error.contains("error:"))
        #expect(try installed.staged() == ["title": 1, "cinema": 1, "voices": 1])
        // One response to a challenge serves all packs of the server.
        let shared = try Directory.open(installed.container.appending("shared"))
        let asked = try shared.file(reading: "challenges")?.readAll(limit: 100)
        #expect(asked == Array("cinema\n".utf8))
        for pack in refused {
            let fields = server.requests(for: pack.path).map { $0["Authorization"] }
            #expect(fields == [nil, "Basic YWRhOmxvdmVsYWNl"])
        }
    }

    @Test func replacementsForAFailedDownloadAreStagedInTheSameRun() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let server = installed.world.server
        let cinema = try #require(try packs().first { $0.pack.id.text == "cinema" })
        server.answer(cinema.path, with: .status(404))
        server.answer("/news", with: .status(404))
        server.answer("/digest", with: .content(Array("digest".utf8)))
        try installed.extend(
            with: """
                def news(name):
                    return {"identifier": name, "url": "\(server.url("/"))" + name,
                            "fileSize": 6, "applicationGroup": message["applicationGroup"]}
                if message["kind"] == "downloads":
                    answer["downloads"] = [{"pack": "title"}, {"pack": "cinema"}, news("news")]
                elif message["kind"] == "failed":
                    with open(os.path.join(message["container"], "failed"), "a") as file:
                        file.write(message["download"].get("pack", "file") + "\\n")
                    # The pack that failed is not tried again, and what replaces it is.
                    answer["downloads"] = [
                        {"pack": "cinema"}, {"pack": "low-detail"}
                    ] if "pack" in message["download"] else [news("digest")]
                elif message["kind"] == "finished" and "file" in message:
                    with open(os.path.join(message["container"], "finished"), "a") as file:
                        file.write(message["download"].get("pack", "file") + "\\n")
                """
        )
        let ending = try await installed.run("prefetch", "--all", "--attempts", "1")
        #expect(try installed.staged() == ["title": 1, "low-detail": 1])
        // The replacement downloads do not hide the failures.
        #expect(ending.status == 21)
        #expect(ending.error.contains("pack 'cinema': "))
        #expect(ending.error.contains("file 'news': "))
        #expect(!ending.error.contains("'low-detail'"))
        let shared = try Directory.open(installed.container.appending("shared"))
        func lines(_ name: FilePath) throws -> [Substring] {
            let bytes = try shared.file(reading: name)?.readAll(limit: 1000) ?? []
            return String(decoding: bytes, as: UTF8.self).split(separator: "\n").sorted()
        }
        #expect(try lines("failed") == ["cinema", "file"])
        #expect(try lines("finished") == ["file", "low-detail", "title"])
        let why = try await installed.run("why", "low-detail")
        #expect(!why.output.contains("did not ask for it"))
        #expect(server.requests(for: cinema.path).count == 1)
    }

    @Test func anExtensionThatWantsEverMoreIsEnded() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let server = installed.world.server
        try installed.extend(
            with: """
                def file(number):
                    return {"identifier": str(number), "url": "\(server.url("/endless/"))" + str(number),
                            "essential": True, "fileSize": 6,
                            "applicationGroup": message["applicationGroup"]}
                if message["kind"] == "downloads":
                    answer["downloads"] = [{"pack": "title"}, file(0)]
                elif message["kind"] == "failed":
                    answer["downloads"] = [file(int(message["download"]["identifier"]) + 1)]
                """
        )
        // On a busy machine, a deadline may pass before the second request.
        for deadline in [10, 40, 160] where server.requests(for: "/endless/1").isEmpty {
            let hook = try await installed.run(
                "prefetch",
                "--all",
                "--hook",
                "--deadline",
                "\(deadline)"
            )
            #expect(hook.status == 0)
        }
        #expect(try installed.staged() == ["title": 1])
        // After each failed download, the extension requested the next one, until the deadline.
        #expect(server.requests(for: "/endless/1").count == 1)
    }

    @Test func packsAndFilesOfARunShareTheAllowance() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        installed.world.server.answer("/news", with: .content(Array("news".utf8)))
        try installed.extend(
            with: """
                if message["kind"] == "downloads":
                    answer["downloads"] = [{"pack": "voices"}, {
                        "identifier": "news", "url": "\(installed.world.server.url("/news"))",
                        "fileSize": 4, "applicationGroup": message["applicationGroup"]}]
                elif message["kind"] == "failed":
                    assert message["error"]["code"] == 112, message["error"]
                    with open(os.path.join(message["container"], "refused"), "w") as file:
                        file.write(message["download"]["identifier"])
                    answer["downloads"] = []
                """
        )
        var restrictions = Registration.Restrictions()
        let voices = try #require(try packs().first { $0.pack.id.text == "voices" })
        restrictions.downloadAllowance = voices.pack.downloadSize + ByteCount(3)
        installed.registration.restrictions = restrictions
        try installed.install()
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 14)
        #expect(ending.error.contains("file 'news': 'downloadAllowance'"))
        #expect(try installed.staged() == ["voices": 1])
        #expect(FileStatus.exists(installed.container.appending("shared/refused")))
    }

    @Test func aServerThatRedirectsDoesNotGetTheCredentialOfAnother() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let server = installed.world.server
        let other = try TestServer()
        defer { other.stop() }
        // Both origins belong to the manifest, so the extension may request files from both.
        let manifest = try installed.world.manifest(of: try packs())
        server.answer("/manifest.json", with: .redirect(to: other.url("/manifest.json")))
        other.answer("/manifest.json", with: .content(manifest))
        server.answer("/news", with: .redirect(to: other.url("/news")))
        other.answer("/news", with: .status(401))
        try installed.extend(
            with: """
                if message["kind"] == "downloads":
                    answer["downloads"] = [{
                        "identifier": "news", "url": "\(server.url("/news"))",
                        "fileSize": 4, "applicationGroup": message["applicationGroup"]}]
                elif message["kind"] == "challenge":
                    answer["disposition"] = "useCredential"
                    answer["user"] = "ada"
                    answer["password"] = "lovelace"
                else:
                    answer["downloads"] = []
                """
        )
        let ending = try await installed.run("prefetch", "--all", "--attempts", "1")
        #expect(ending.status != 0)
        #expect(server.requests(for: "/news").map { $0["Authorization"] } == [nil])
        #expect(other.requests(for: "/news").map { $0["Authorization"] } == [nil])
    }

    @Test func oneReplacementOfTwoFailuresIsDownloadedOnce() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        let server = installed.world.server
        for pack in try packs() where ["cinema", "voices"].contains(pack.pack.id.text) {
            server.answer(pack.path, with: .status(404))
        }
        server.answer("/digest", with: .content(Array("digest".utf8)))
        try installed.extend(
            with: """
                if message["kind"] == "downloads":
                    answer["downloads"] = [{"pack": "cinema"}, {"pack": "voices"}]
                elif message["kind"] == "failed":
                    answer["downloads"] = [{
                        "identifier": "digest", "url": "\(server.url("/digest"))", "fileSize": 6,
                        "applicationGroup": message["applicationGroup"]}]
                """
        )
        let ending = try await installed.run("prefetch", "--all", "--attempts", "1")
        #expect(ending.output.contains("1 of 1 file"), "\(ending)")
        #expect(server.requests(for: "/digest").count == 1)
    }

    @Test func packsOfOneRunDoNotDriveEachOtherOut() async throws {
        var installed = try await Installed()
        var packs = try packs()
        // Packs that policies do not select are evicted first.
        for index in packs.indices { packs[index].pack.policy = .onDemand }
        try installed.world.publish(packs)
        installed.world.server.answer(packs[1].path, with: .status(404))
        try installed.extend(
            with: """
                if message["kind"] == "downloads":
                    answer["downloads"] = [{"pack": "title"}, {"pack": "cinema"}]
                elif message["kind"] == "failed" and message["download"]["pack"] == "cinema":
                    answer["downloads"] = [{"pack": "low-detail"}]
                elif message["kind"] == "failed":
                    answer["downloads"] = []
                """
        )
        let one = StoredGeneration.size(
            packs[0].pack.installedSize,
            fileCount: packs[0].pack.fileCount
        )
        installed.registration.quota = one + one - ByteCount(1)
        try installed.install()
        let ending = try await installed.run("prefetch", "--all", "--attempts", "1")
        #expect(ending.status != 0)
        #expect(try installed.staged() == ["title": 1])
    }
}
