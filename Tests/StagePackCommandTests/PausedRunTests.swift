import FoundationEssentials
import StageContainer
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Runs that a person pauses and resumes: after that, they make a new plan for the packs that are not staged yet.
@Suite(.apart, .server, .directory, .timeLimit(.minutes(10)))
struct PausedRunTests {
    private static let application = "net.example.wallpaper"

    /// Runs a command, pauses it when `isReady` and a part of the large pack has arrived, and resumes it at full speed.
    private func runPaused(
        _ arguments: [String],
        _ installed: inout Installed,
        receiving large: SamplePack,
        whilePaused change: @escaping @Sendable () throws -> Void = {},
        when isReady: @escaping @Sendable () -> Bool
    ) async throws -> Program.Ending {
        try await withDaemon(&installed) { installed, client in
            let downloads = installed.container.appending("downloads")
            return try await installed.world.program.run(arguments) { _ in
                try await poll("the small pack is not staged") { isReady() }
                try await poll("no byte arrives") { partSize(below: downloads) >= 1 << 20 }
                let id = try #require(try await client.tasks().first?.id)
                #expect(try await installed.run("pause", "\(id)").status == 0)
                try await pollUntilUnchanged(for: .milliseconds(1500), "bytes go on coming") {
                    partSize(below: downloads)
                }
                try change()
                installed.world.server.answer(large.path, with: .content(large.archive))
                #expect(try await installed.run("resume", "\(id)").status == 0)
            }
        }
    }

    @Test func aPackThatWasRepairedBeforeThePauseIsNotRepairedAgain() async throws {
        var installed = try await Installed()
        let small = try SamplePack.small(try PackID("lions"))
        let large = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        try installed.world.publish(small, large)
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        for id in [small.pack.id, large.pack.id] {
            let directory = try Directory.open(installed.container.appending("packs/\(id)"))
            try directory.write([1], to: "spoiled.txt", durably: false)
        }
        let server = installed.world.server
        let slow = Answer.content(large.archive).slowed(to: 256 << 10)
        server.answer(large.path, with: slow)
        let requests = server.counts(for: small.path).requests
        let spoiled = installed.container.appending("packs/lions/spoiled.txt")
        let ending = try await runPaused(
            ["repair", "--app", Self.application, "--quiet"],
            &installed,
            receiving: large
        ) {
            !FileStatus.exists(spoiled)
        }
        #expect(ending.status == 0, "\(ending)")
        #expect(server.counts(for: small.path).requests == requests + 1)
        let other = installed.container.appending("packs/aurora/spoiled.txt")
        #expect(!FileStatus.exists(other))
    }

    /// The allowance permits two of three packs, and the first one was downloaded before the pause.
    @Test func aResumedRunKeepsToItsAllowance() async throws {
        var installed = try await Installed()
        let first = try SamplePack.small(try PackID("first"))
        let large = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        let last = try SamplePack.small(try PackID("last"))
        var restrictions = Registration.Restrictions()
        restrictions.essentialDownloadAllowance =
            first.pack.downloadSize + large.pack.downloadSize + ByteCount(10_000)
        installed.registration.restrictions = restrictions
        try installed.install()
        try installed.world.publish([first, large, last]) { $0.slowed(to: 256 << 10) }
        let staged = installed.container.appending("packs/first")
        let ending = try await runPaused(
            ["prefetch", "--app", Self.application, "--quiet"],
            &installed,
            receiving: large
        ) {
            FileStatus.exists(staged)
        }
        let reason = "pack 'last': 'essentialDownloadAllowance' of the registration leaves "
        #expect(ending.error.contains(reason), "\(ending)")
        #expect(try installed.staged() == ["first": 1, "aurora": 1])
        #expect(installed.world.server.counts(for: last.path).requests == 0)
    }

    /// The quota has no space for the last pack, until another process removes a pack that no manifest offers, and stages
    /// the last one.
    @Test func aRefusedPackThatAnotherProcessStagesDoesNotFailTheRun() async throws {
        var installed = try await Installed()
        let small = try SamplePack.small(try PackID("lions"))
        let last = try SamplePack.small(try PackID("last"))
        // Smaller than the last pack by a byte.
        let old = try SamplePack.small(try PackID("old"))
        let large = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        try installed.world.publish(small, last, old)
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        let container = installed.container
        let aside = installed.world.directory.path.appending("aside")
        _ = try Directory.make(aside)
        try Self.move("last", from: container, to: aside)
        installed.registration.quota = [small, last, large].reduce(ByteCount.zero) { sum, pack in
            sum + StoredGeneration.size(of: pack.pack)
        }
        try installed.install()
        try installed.world.publish([small, large, last]) { $0.slowed(to: 256 << 10) }
        let requests = installed.world.server.counts(for: last.path).requests
        let ending = try await runPaused(
            ["prefetch", "--app", Self.application, "--quiet"],
            &installed,
            receiving: large,
            whilePaused: {
                try Self.move("old", from: container, to: aside)
                try Self.move("last", from: aside, to: container)
            },
            when: { true }
        )
        #expect(ending.status == 0, "\(ending)")
        #expect(try installed.staged() == ["lions": 1, "aurora": 1, "last": 1])
        #expect(installed.world.server.counts(for: last.path).requests == requests)
    }

    /// Moves the generations of a pack, and the link to its current one, which exists only beside them.
    private static func move(
        _ pack: String,
        from source: FilePath,
        to target: FilePath
    ) throws {
        for folder in ["packs", "generations"] {
            _ = try Directory.make(target.appending(folder))
        }
        let link = source.appending("packs/\(pack)").string
        let destination = try FileManager.default.destinationOfSymbolicLink(atPath: link)
        try FileManager.default.removeItem(atPath: link)
        try FileManager.default.moveItem(
            atPath: source.appending("generations/\(pack)").string,
            toPath: target.appending("generations/\(pack)").string
        )
        try FileManager.default.createSymbolicLink(
            atPath: target.appending("packs/\(pack)").string,
            withDestinationPath: destination
        )
    }
}
