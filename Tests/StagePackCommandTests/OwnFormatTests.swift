import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

/// Manifests in a format of the application: their effects for the application, and that they do not affect the other
/// applications of the group.
@Suite(.server, .directory, .mountNamespaceIfRoot)
struct OwnFormatTests {
    private static let news = "net.example.news"
    private static let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]

    /// An extension that reads a manifest of three words: the name of a file, its URL and its size.
    private static let reader = """
        print("the manifest is read", file=sys.stderr)
        if message["kind"] == "downloads":
            assert message["packs"] == []
            name, url, size = open(message["manifest"]).read().split()
            answer["downloads"] = [{
                "identifier": name, "url": url, "fileSize": int(size),
                "applicationGroup": message["applicationGroup"]}]
        elif message["kind"] == "finished":
            os.rename(message["file"], os.path.join(message["container"], "news.txt"))
        """

    /// A manifest of words that names a file, which the server then has.
    private func words(_ installed: Installed) -> [UInt8] {
        let server = installed.world.server
        server.answer("/news", with: .content(Array("news of the day\n".utf8)))
        return Array("news \(server.url("/news")) 16".utf8)
    }

    /// A manifest in StagePack's format of the application that changes its format.
    private func manifest(revision: Int, _ packs: [SamplePack] = []) throws -> [UInt8] {
        Manifest(
            application: try ApplicationID(Self.news),
            revision: revision,
            packs: packs.map(\.pack)
        ).json()
    }

    /// The application that changes its format, registered in StagePack's.
    private func newsApplication() async throws -> Installed {
        var installed = try await Installed()
        try installed.uninstall()
        installed.registration.application = try ApplicationID(Self.news)
        installed.registration.manifestURLs = [installed.world.server.url("/news.json")]
        try installed.extend(with: Self.reader)
        installed.registration.downloaderExtension = nil
        try installed.install()
        return installed
    }

    /// Registers the application with a manifest of words, or again with one of StagePack's.
    private func register(
        _ installed: inout Installed,
        _ format: Registration.ManifestFormat
    ) throws {
        installed.registration.manifestFormat = format
        let program = installed.world.directory.path.appending("program/choose")
        installed.registration.downloaderExtension =
            format == .application ? .init(path: program.string) : nil
        try installed.install()
    }

    private func serve(_ manifest: [UInt8], _ installed: Installed) {
        installed.world.server.answer("/news.json", with: .content(manifest))
    }

    @Test func theExtensionReadsTheManifestAndNamesFiles() async throws {
        var installed = try await newsApplication()
        try register(&installed, .application)
        serve(words(installed), installed)
        for round in 1...2 {
            let ending = try await installed.run("prefetch", "--all", "--event", "periodic")
            #expect(ending.status == 0, "\(ending)")
            #expect(ending.output.contains("1 of 1 file"), "\(round): \(ending)")
            let program = try #require(installed.registration.downloaderExtension?.path)
            #expect(ending.error.contains("the manifest is read"))
            #expect(ending.error.contains("extension.program=\(program)"))
        }
        let shared = try Directory.open(installed.container.appending("shared"))
        #expect(try shared.file(reading: "news.txt")?.readAll(limit: 100).count == 16)
    }

    /// A group whose first application is registered in its own format since its pack 'gazette' was staged, and whose
    /// second one has packs of each policy.
    private func group() async throws -> (news: Installed, other: Registration) {
        var news = try await newsApplication()
        let gazette = try SamplePack.small(try PackID("gazette"))
        news.world.server.answer(gazette.path, with: .content(gazette.archive))
        serve(try manifest(revision: 7, [gazette]), news)
        let first = try await news.run("prefetch", "--all")
        #expect(first.status == 0, "\(first)")
        #expect(try news.staged() == ["gazette": 1])

        try register(&news, .application)
        serve(words(news), news)
        var other = news
        other.registration = Registration(
            application: try ApplicationID("net.example.wallpaper"),
            version: "1.0",
            group: news.registration.group,
            manifestURLs: [news.world.manifestURL],
            trust: .transport
        )
        try other.install()
        try news.world.publish(
            try .small(try PackID("title")),
            try .small(try PackID("rare"), policy: .onDemand),
            try .small(try PackID("old"), policy: .prefetch(Self.events))
        )
        let second = try await news.run("prefetch", "--all")
        #expect(second.status == 0, "\(second)")
        let fetched = try await news.run("fetch", "rare", "--app", "net.example.wallpaper")
        #expect(fetched.status == 0, "\(fetched)")
        #expect(try news.staged() == ["gazette": 1, "title": 1, "rare": 1, "old": 1])
        return (news, other.registration)
    }

    private func succeed(
        _ installed: Installed,
        _ arguments: String...,
        at location: SourceLocation = #_sourceLocation
    ) async throws -> String {
        let ending = try await installed.world.program.run(arguments)
        #expect(ending.status == 0, "\(ending)", sourceLocation: location)
        return ending.output
    }

    private func hasNews(_ installed: Installed) -> Bool {
        FileStatus.exists(installed.container.appending("shared/news.txt"))
    }

    @Test func reportsOfTheGroupIncludeAManifestInItsOwnFormat() async throws {
        let (installed, _) = try await group()
        let path = installed.container.string
        let status = try await succeed(installed, "status", "--container", path)
        #expect(status.contains("\(Self.news), the manifest in its own format, from "))
        #expect(status.contains("net.example.wallpaper, revision 1, from "))
        #expect(status.contains(#/gazette .* staged, kept until it is removed/#))
        #expect(!status.contains("no longer offered"))
        let doctor = try await succeed(installed, "doctor", "--container", path)
        #expect(doctor.contains("\(Self.news), in its own format"))
        #expect(doctor.contains("net.example.wallpaper, revision 1"))
        let plan = try await succeed(installed, "plan", "--app", Self.news)
        #expect(plan.contains("\(Self.news), the manifest in its own format, into "))
        let all = try await succeed(installed, "plan", "--container", path)
        #expect(all.contains("title"))
        #expect(try await succeed(installed, "why").contains(Self.news))
        #expect(try await succeed(installed, "why", "old").contains("staged"))
        let json = try await succeed(installed, "status", "--json", "--container", path)
        #expect(json.contains(#""state" : "kept""#))
        #expect(!json.contains(#""revision" : 0"#))
    }

    @Test func collectionsAndQuotasConcernTheOtherApplicationAlone() async throws {
        var (installed, other) = try await group()
        let path = installed.container.string
        _ = try await succeed(installed, "gc", "--previous", "--container", path)
        #expect(try installed.staged().count == 4)
        // The essential and the kept packs exceed the quota.
        let refused = try await installed.run("gc", "--quota", "0", "--container", path)
        #expect(refused.status == 40, "\(refused)")
        #expect(try installed.staged().count == 4)
        let quota = "\(2 * 36_600)"
        let ending = try await installed.run("gc", "--quota", quota, "--container", path)
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output.contains("evicted rare") && ending.output.contains("evicted old"))
        #expect(try installed.staged() == ["gazette": 1, "title": 1])
        #expect(hasNews(installed))

        // A pack that needs the space of another one evicts it.
        let fetched = try await installed.run("fetch", "rare", "--app", "net.example.wallpaper")
        #expect(fetched.status == 0, "\(fetched)")
        other.quota = ByteCount(Int64(3 * 36_600))
        let news = installed.registration
        installed.registration = other
        try installed.install()
        installed.registration = news
        let next = try await installed.run("fetch", "old", "--app", "net.example.wallpaper")
        #expect(next.status == 0, "\(next)")
        #expect(try installed.staged() == ["gazette": 1, "title": 1, "old": 1])
    }

    @Test func obsoletePacksAreRemovedAndKeptOnesAreNot() async throws {
        var (installed, _) = try await group()
        try installed.world.publish(
            try .small(try PackID("title")),
            try .small(try PackID("rare"), policy: .onDemand)
        )
        let timer = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(timer.status == 0, "\(timer)")
        #expect(try installed.staged() == ["gazette": 1, "title": 1, "rare": 1])
        #expect(hasNews(installed))
    }

    @Test func aKeptPackStaysInACopyOfTheContainerWithoutItsLink() async throws {
        let (installed, _) = try await group()
        try installed.followLink(of: "gazette")
        let timer = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(timer.status == 0, "\(timer)")
        #expect(FileStatus.exists(installed.container.appending("packs/gazette")))
        let reader = try #require(try ContainerReader.open(installed.container))
        #expect(try reader.inventory().map(\.id.text).contains("gazette"))
    }

    @Test func aKeptPackStaysThoughAnotherApplicationOffersItOnDemand() async throws {
        var (installed, _) = try await group()
        try installed.world.publish(
            try .small(try PackID("title")),
            try .small(try PackID("gazette"), policy: .onDemand)
        )
        let path = installed.container.string
        let timer = try await installed.run("prefetch", "--all", "--event", "periodic")
        #expect(timer.status == 0, "\(timer)")
        let ending = try await installed.run("gc", "--quota", "0", "--container", path)
        #expect(ending.status == 40, "\(ending)")
        #expect(try installed.staged() == ["gazette": 1, "title": 1])
    }

    @Test(arguments: [true, false])
    func aKeptPackIsRemovedByItsNameOrWithItsApplication(isByName: Bool) async throws {
        let (installed, _) = try await group()
        if isByName {
            let path = installed.container.string
            _ = try await succeed(installed, "remove", "gazette", "--container", path)
        } else {
            try installed.uninstall()
            let ending = try await succeed(installed, "gc", "--unregistered")
            #expect(ending.contains("\(Self.news): no longer registered, 1 pack removed"))
        }
        #expect(try installed.staged() == ["title": 1, "rare": 1, "old": 1])
    }

    @Test func anApplicationChangesItsFormatAndBack() async throws {
        var installed = try await newsApplication()
        func update() async throws -> Program.Ending {
            try await installed.run("prefetch", "--all", "--event", "periodic", "--attempts", "1")
        }
        serve(try manifest(revision: 7), installed)
        #expect(try await update().status == 0)
        try register(&installed, .application)
        // The extension cannot read the manifest that was accepted before.
        installed.world.server.answer("/news.json", with: .status(503))
        let without = try await update()
        #expect(without.status == 10, "\(without)")
        #expect(!without.error.contains("using"), "\(without)")
        serve(words(installed), installed)
        let own = try await update()
        #expect(own.status == 0, "\(own)")
        #expect(own.output.contains("1 of 1 file"))
        installed.world.server.answer("/news.json", with: .status(503))
        let stored = try await update()
        #expect(stored.error.contains("using the manifest in its own format"), "\(stored)")

        try register(&installed, .stagepack)
        serve(words(installed), installed)
        #expect(try await update().status == 11)
        serve(try manifest(revision: 2), installed)
        let back = try await update()
        #expect(back.status == 0, "\(back)")
        // Within one format, revisions are compared as before.
        serve(try manifest(revision: 1), installed)
        let older = try await update()
        #expect(older.status == 12, "\(older)")
        #expect(older.error.contains("it went back from revision 2 to revision 1"), "\(older)")
    }

    /// A run that finds its manifest in the container reads it in the format of the registration.
    @Test func aContainerAloneDoesNotHoldAnApplicationToItsFormerFormat() async throws {
        var installed = try await newsApplication()
        let path = installed.container.string
        serve(try manifest(revision: 7), installed)
        _ = try await succeed(installed, "prefetch", "--all")
        for format in [Registration.ManifestFormat.application, .stagepack] {
            try register(&installed, format)
            serve(
                format == .application ? words(installed) : try manifest(revision: 1),
                installed
            )
            _ = try await succeed(installed, "prefetch", "--container", path)
            let reader = try #require(try ContainerReader.open(installed.container))
            let record = try reader.storedManifest(for: try ApplicationID(Self.news))
            #expect((record?.customFormatApplication != nil) == (format == .application))
        }
    }

    /// If an application has loaded a pack before it changed its format, the restrictions before the first launch do not apply again.
    @Test func anApplicationThatHasLoadedAPackStaysLaunched() async throws {
        let (installed, _) = try await group()
        _ = try await succeed(installed, "load", "gazette", "--app", Self.news)
        _ = try await succeed(installed, "prefetch", "--all", "--event", "periodic")
        let reader = try #require(try ContainerReader.open(installed.container))
        let history = try reader.history(of: try ApplicationID(Self.news))
        #expect(history?.firstLoadedAt != nil)
    }
}

/// Signed manifests in a format of the application.
@Suite(.server, .directory, .mountNamespaceIfRoot)
struct SignedOwnFormatTests {
    /// A world that has changed from a signed manifest in StagePack's format to a signed text.
    private func changed() async throws -> SignedWorld {
        var world = try await SignedWorld()
        world.installed.world.revision = 7
        try world.publish(try .small(.aurora))
        try await world.succeed()
        world.installed.registration.manifestFormat = .application
        try world.installed.extend(with: #"answer["downloads"] = []"#)
        try sign("a text", &world)
        return world
    }

    private func sign(_ text: String, _ world: inout SignedWorld) throws {
        world.repository.contents["targets"] = ["manifest.json": Array(text.utf8)]
        try world.repository.publish([.targets, .snapshot, .timestamp])
        world.serve()
    }

    @Test func aSignedManifestChangesItsFormatAndBack() async throws {
        var world = try await changed()
        let old = world.repository.files
        try await world.succeed()
        try sign("another text", &world)
        try await world.succeed()
        // The versions of the metadata protect a text without a revision.
        for (path, bytes) in old {
            world.server.answer("/signed/metadata/\(path)", with: .content(bytes))
        }
        try await world.refuse("goes back from version")
        world.serve()
        try await world.succeed()

        world.installed.registration.manifestFormat = .stagepack
        world.installed.registration.downloaderExtension = nil
        try world.installed.install()
        world.installed.world.revision = 1
        try world.publish(try .small(.aurora, version: 2))
        try await world.succeed()
        #expect(try world.installed.staged() == ["aurora": 2])
    }

    @Test func anUnsignedManifestTakesNoKeptPackOver() async throws {
        let world = try await changed()
        try await world.succeed()
        let packs = [try SamplePack.small(.aurora, version: 99)]
        let text = String(decoding: try world.world.manifest(of: packs), as: UTF8.self)
        let other = text.replacing("net.example.wallpaper", with: "net.example")
        world.server.answer("/other/manifest.json", with: .content(Array(other.utf8)))
        let ending = try await world.world.program.run([
            "fetch", "aurora", "--attempts", "1", "--manifest",
            world.server.url("/other/manifest.json"),
        ])
        #expect(ending.status == 12, "\(ending)")
        #expect(
            ending.error.contains("its pack 'aurora' is one of application 'net.example.wallpaper'")
        )
        #expect(try world.installed.staged() == ["aurora": 1])
    }
}
