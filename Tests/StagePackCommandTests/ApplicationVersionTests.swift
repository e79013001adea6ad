import StageModel
import StageTesting
import Testing

/// Updates for another version of the application than the installed one.
@Suite(.server, .directory, .mountNamespace)
struct ApplicationVersionTests {
    private let app = "net.example.wallpaper"
    private let periodic = ["prefetch", "--all", "--event", "periodic", "--quiet"]

    private func run(_ installed: Installed) async throws -> Int32 {
        try await installed.world.program.run(periodic).status
    }

    /// Version 1.0 of the application with version 1 of a pack.
    private func installed() async throws -> Installed {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--app", app, "--quiet").status == 0)
        return installed
    }

    @Test func aManifestForALaterApplicationLeavesWhatIsStaged() async throws {
        var installed = try await installed()
        let manifest = Manifest(
            application: try ApplicationID(app),
            revision: 2,
            applicationVersion: try VersionRequirement(">=2"),
            packs: [try SamplePack.small(.aurora, version: 2).pack]
        )
        try installed.world.publish(try .small(.aurora, version: 2))
        installed.world.server.answer("/manifest.json", with: .content(manifest.json()))
        #expect(try await run(installed) == 12)
        #expect(try installed.staged() == ["aurora": 1])
        let why = try await installed.run("why", "--app", app).output
        #expect(why.contains("it requires application version '>=2', found '1.0'"))
        #expect(why.contains("  to do: update the application\n"))

        installed.registration.version = "2.0"
        try installed.install()
        #expect(try await run(installed) == 0)
        #expect(try installed.staged() == ["aurora": 2])
    }

    @Test func aPackForALaterApplicationIsLeftAndTheOthersAreUpdated() async throws {
        var installed = try await installed()
        var later = try SamplePack.small(.aurora, version: 2)
        later.pack.applicationVersion = try VersionRequirement(">=2")
        try installed.world.publish(later, try .small(try PackID("other")))
        #expect(try await run(installed) == 0)
        #expect(try await installed.run("fetch", "other", "--app", app, "--quiet").status == 0)
        #expect(try installed.staged() == ["aurora": 1, "other": 1])
        let held = "for application version '>=2', 1.0 is installed"
        #expect(try await run(installed) == 0)
        let why = try await installed.run("why", "aurora", "--app", app).output
        #expect(why.contains("aurora, version 2: left, \(held)\n"))
        #expect(try await installed.run("fetch", "aurora", "--app", app, "--quiet").status == 12)

        installed.registration.version = "2.0"
        try installed.install()
        #expect(try await run(installed) == 0)
        #expect(try installed.staged() == ["aurora": 2, "other": 1])
    }
}
