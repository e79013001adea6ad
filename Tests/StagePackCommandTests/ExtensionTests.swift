import FoundationEssentials
import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Downloader extensions in the life of an application: what they ask for is what is staged.
@Suite(
    .server,
    .directory,
    .enabled("root needs a '/var/lib' of its own") {
        guard geteuid() == 0 else { return true }
        return await Program.canMount
    }
)
struct ExtensionTests {
    /// Packs with what a publisher says of them for the sample extension.
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

    /// Writes an extension that is a program of Python's, and names it in the registration.
    private func extend(_ installed: inout Installed, with text: String) throws {
        let folder = try installed.world.directory.makeDirectory("program")
        let path = folder.path.appending("choose")
        let file = try folder.file(
            creating: "choose",
            permissions: FilePermissions(rawValue: 0o755)
        )
        let script = """
            #!/usr/bin/python3
            import json, os, sys, time
            message = json.load(sys.stdin)
            answer = {"protocol": 1}
            \(text)
            json.dump(answer, sys.stdout)
            """
        try file.write(Array(script.utf8).span, at: 0)
        installed.registration.downloaderExtension = .init(path: path.string)
        try installed.install()
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
        #expect(hook.output == "stagepack: net.example.wallpaper: 1 staged (20.2 kB)\n")
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
        try extend(
            &installed,
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
        #expect(try installed.history()?.pending == .install)
        let ending = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(ending.error == "")
        #expect(ending.status == 0)
        #expect(try installed.history()?.pending == nil)
        #expect(ending.output.contains("0 staged, 0 up to date, 1 of 1 files"))
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
        try extend(
            &installed,
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

    @Test func aFileOfAnotherSizeIsAnErrorThatTheExtensionIsTold() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        installed.world.server.answer("/news", with: .content(Array("longer than said".utf8)))
        try extend(
            &installed,
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

    /// Extensions that do not do their part, and what names the fault.
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
        try extend(&installed, with: fault.text)
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 15)
        #expect(ending.error.contains("/program/choose' \(fault.message)"))
        let staged = ["title": 1, "cinema": 1, "low-detail": 1, "voices": 1]
        #expect(try installed.staged() == staged)
        let hook = try await installed.run("prefetch", "--all", "--hook")
        #expect(hook.status == 0)
        #expect(hook.output.contains("/program/choose' \(fault.message)"))
        #expect(hook.output.split(separator: "\n").count == 1)
    }

    @Test func theDeadlineOfAHookEndsAnExtensionThatHangs() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        try extend(&installed, with: "time.sleep(1000)")
        let start = ContinuousClock.now
        let ending = try await installed.run("prefetch", "--all", "--hook", "--deadline", "3")
        #expect(ContinuousClock.now - start < .seconds(25))
        #expect(ending.status == 0)
        #expect(ending.output.contains("the time was up"))
    }

    @Test func restrictionsHoldForWhatAnExtensionAsksFor() async throws {
        var installed = try await Installed()
        try installed.world.publish(try packs())
        installed.world.server.answer("/news", with: .content(Array("news".utf8)))
        try extend(
            &installed,
            with: """
                if message["kind"] == "downloads":
                    assert message["restrictedDownloadSizeRemaining"] == 3
                    answer["downloads"] = [{"pack": "voices"}, {
                        "identifier": "news", "url": "\(installed.world.server.url("/news"))",
                        "fileSize": 4, "applicationGroup": message["applicationGroup"]}]
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
}
