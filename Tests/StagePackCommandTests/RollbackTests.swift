import FoundationEssentials
import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import Subprocess
import Synchronization
import SystemPackage
import Testing

/// `rollback` and `pin`: a pinned pack is never updated.
@Suite(.server, .directory)
struct RollbackTests {
    private let versions: [SamplePack]

    init() throws {
        versions = try (1...3).map { try .small(.aurora, version: $0) }
    }

    /// A world in which version 2 was staged over version 1.
    private func updated() async throws -> World {
        var world = try World()
        for version in versions.prefix(2) {
            try world.publish(version)
            try await world.succeed("prefetch", "--quiet")
        }
        return world
    }

    @Test func aPackThatWasRolledBackIsNotUpdatedUntilItsPinIsReleased() async throws {
        var world = try await updated()
        let reader = try #require(try ContainerReader.open(world.container))
        let lease = try #require(try reader.lease(.aurora))
        let said = try await world.succeed("rollback", "aurora")
        #expect(said.hasPrefix("aurora: rolled back from version 2 to 1 and pinned; undo with "))
        #expect(try world.staged(.aurora) == StagedFiles(versions[0]))
        #expect(try StagedFiles(lease.content) == StagedFiles(versions[1]))
        #expect(try await world.succeed("verify") == "aurora: as it was staged\n")
        // 'why' shows the decision about the version that was rolled back.
        let earlier = try await world.succeed("why", "aurora")
        #expect(earlier.contains("\naurora, version 2: staged, "), "\(earlier)")
        #expect(earlier.contains("\n  now: version 1 is staged here\n"), "\(earlier)")

        try world.publish(versions[2])
        for event in ["install", "update", "periodic"] {
            try await world.succeed("prefetch", "--event", event)
        }
        #expect(try world.staged(.aurora) == StagedFiles(versions[0]))
        #expect(world.server.counts(for: versions[2].path).requests == 0)
        let held = "pinned to version 1, rolled back from version 2"
        #expect(try await world.succeed("plan").contains(held))
        let status = try await world.succeed("status")
        #expect(status.contains("outdated, version 3 is offered, \(held) (version 2 is kept)"))
        let why = try await world.succeed("why", "aurora")
        #expect(why.contains("aurora, version 3: left, \(held)\n"))
        #expect(
            why.contains(
                "  to do: run 'stagepack pin --release aurora --container \(world.container)' to permit updates"
            )
        )

        let released = try await world.succeed("pin", "aurora", "--release")
        #expect(released == "aurora: no longer pinned to version 1\n")
        try await world.succeed("prefetch", "--event", "periodic")
        #expect(try world.staged(.aurora) == StagedFiles(versions[2]))
        // This rollback returns to version 1, not to version 2, which the first rollback rejected.
        try await world.succeed("rollback", "aurora")
        #expect(try world.staged(.aurora) == StagedFiles(versions[0]))
    }

    /// A world in which version 2 was rolled back and is not pinned any more.
    private func released() async throws -> World {
        let world = try await updated()
        try await world.succeed("rollback", "aurora")
        try await world.succeed("pin", "aurora", "--release")
        return world
    }

    @Test func aVersionThatIsKeptIsStagedAgainWithoutATransfer() async throws {
        let world = try await released()
        let requests = world.server.counts(for: versions[1].path).requests
        let status = try await world.succeed("status")
        #expect(status.contains("outdated, version 2 is offered (version 2 is kept)"))
        #expect(try await world.succeed("plan").contains("1 pack to stage: 0 B to download"))

        try await world.succeed("fetch", "aurora", "--offline", "--quiet")
        #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
        #expect(try await world.succeed("verify") == "aurora: as it was staged\n")
        try await world.succeed("rollback", "aurora")
        #expect(try world.staged(.aurora) == StagedFiles(versions[0]))
        try await world.succeed("pin", "aurora", "--release")
        try await world.succeed("prefetch", "--quiet")
        #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
        #expect(world.server.counts(for: versions[1].path).requests == requests)
    }

    @Test func aVersionThatIsKeptAndDamagedIsDownloaded() async throws {
        let world = try await released()
        let requests = world.server.counts(for: versions[1].path).requests
        let generations = try Directory.open(world.container.appending("generations/aurora"))
        for name in try generations.entries().map(\.path.string) where name.hasPrefix("2-") {
            let content = try #require(try generations.directory(FilePath("\(name)/content")))
            _ = try content.remove("readme.txt")
        }
        let offline = try await world.run("fetch", "aurora", "--offline", "--quiet")
        #expect(offline.status == 75)
        let problem =
            "pack 'aurora': version 2 is not in the container, and the network may not be used"
        #expect(offline.error.contains(problem))
        #expect(try world.staged(.aurora) == StagedFiles(versions[0]))

        try await world.succeed("fetch", "aurora", "--quiet")
        #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
        #expect(world.server.counts(for: versions[1].path).requests > requests)
    }

    @Test func aSecondRollbackTakesTheFirstOneBack() async throws {
        let world = try await updated()
        try await world.succeed("rollback", "aurora")
        let said = try await world.succeed("rollback", "aurora")
        #expect(
            said
                == "aurora: rollback undone: version 2 is staged again, not pinned\n"
        )
        #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
        #expect(try await world.succeed("pin") == "")
    }

    /// The pin of a rollback keeps every run from staging the newer version.
    @Test func theVersionBeforeARollbackIsPinnedAfterAnother() async throws {
        let world = try await updated()
        try await world.succeed("rollback", "aurora")
        let pin = try await world.run("pin", "aurora", "2")
        let command = "stagepack rollback aurora --container \(world.container)"
        #expect(pin.error.hasSuffix("hint: run '\(command)' for version 2\n"), "\(pin)")
        try await world.succeed("rollback", "aurora")
        try await world.succeed("pin", "aurora", "2")
    }

    @Test func aPinnedPackIsNotFetchedRepairedOrRemoved() async throws {
        var world = try await updated()
        let previous = try await world.run("pin", "aurora", "1")
        #expect(previous.status == 2)
        let command = "stagepack rollback aurora --container \(world.container)"
        #expect(previous.error.hasSuffix("hint: run '\(command)' for version 1\n"), "\(previous)")
        // No command restores a version that is not kept any more.
        let older = try await world.run("pin", "aurora", "0")
        #expect(older.status == 2 && !older.error.contains("hint: "), "\(older)")
        let pin = try await world.succeed("pin", "aurora", "2")
        #expect(pin.hasPrefix("aurora: pinned to version 2, since "))
        #expect(try await world.succeed("pin") == pin)
        try world.publish(versions[2])
        let problem = """
            stagepack: error: pack 'aurora': it is pinned to version 2
            hint: release the pin first: run 'stagepack pin --release aurora --container \(world.container)'

            """
        let fetched = try await world.run("fetch", "aurora", "--quiet")
        #expect(fetched == Program.Ending(status: 43, output: "", error: problem))
        #expect(try await world.run("remove", "aurora").status == 43)

        let reader = try #require(try ContainerReader.open(world.container))
        let content = try #require(try reader.lease(.aurora)).content
        _ = try Directory.open(content).remove("readme.txt")
        let repaired = try await world.run("repair", "--quiet")
        #expect(repaired == Program.Ending(status: 43, output: "", error: problem))
        world.revision += 1
        try world.publish(versions[1])
        try await world.succeed("repair", "--quiet")
        #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
        #expect(try await world.run("fetch", "aurora", "--quiet").status == 0)
        #expect(try await world.succeed("pin").hasPrefix("aurora: pinned to version 2, since "))
    }

    @Test func aPinnedObsoletePackStays() async throws {
        var world = try await updated()
        try await world.succeed("pin", "aurora")
        try world.publish(try .small(try PackID("other")))
        try await world.succeed("prefetch", "--event", "periodic", "--quiet")
        #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
        try await world.succeed("pin", "--release", "aurora")
        try await world.succeed("prefetch", "--event", "periodic", "--quiet")
        #expect(try world.staged(.aurora) == nil)
    }

    @Test func aRollbackWithoutAPreviousGenerationFailsWithAHint() async throws {
        var world = try World()
        try world.publish(versions[0])
        let missing = try await world.run("prefetch", "--quiet")
        #expect(missing.status == 0)
        let ending = try await world.run("rollback", "aurora")
        #expect(ending.status == 44)
        #expect(
            ending.error == """
                stagepack: error: pack 'aurora' has no previous generation
                hint: run 'stagepack status --container \(world.container)' to see which packs have one

                """
        )
        #expect(try await world.run("rollback", "borealis").status == 2)
        let lock = try #require(try Container.open(world.container)?.attemptLock(.aurora))
        #expect(try await world.run("rollback", "aurora").status == 42)
        _ = lock.id
    }

    /// A world in which version 2 of 'aurora' and of 'oceans' replaced version 1, and 'levels' has one version.
    private func updatedPacks() async throws -> World {
        var world = try World()
        let levels = try SamplePack.small(try PackID("levels"))
        for version in versions.prefix(2) {
            let oceans = try SamplePack.small(
                try PackID("oceans"),
                version: version.pack.version
            )
            try world.publish(version, oceans, levels)
            try await world.succeed("prefetch", "--quiet")
        }
        return world
    }

    @Test func noPackIsRolledBackUnlessAllCanBe() async throws {
        let world = try await updatedPacks()
        // A repeated rollback would undo the first one.
        for _ in 1...2 {
            let ending = try await world.run("rollback", "aurora", "levels", "--json")
            #expect(ending.status == 44, "\(ending)")
            #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
            #expect(try await world.succeed("pin") == "")
        }
        let container = try #require(try Container.open(world.container))
        let lock = try #require(try container.attemptLock(try PackID("oceans")))
        #expect(try await world.run("rollback", "aurora", "oceans").status == 42)
        #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
        _ = lock.id
    }

    @Test func aPlanMentionsThePinOfAPackThatIsUpToDate() async throws {
        let world = try await updated()
        let before = try await world.succeed("plan")
        #expect(!before.contains("pinned"), "\(before)")
        try await world.succeed("pin", "aurora")
        let plan = try await world.succeed("plan")
        #expect(plan.contains("staged and up to date, pinned to version 2"), "\(plan)")
        let json = try await world.succeed("plan", "--json")
        let value = try JSONNode(json: Array(json.utf8)).value
        #expect(try OutputSchemas().faults(of: value, as: "plan") == [])
        #expect(json.contains(#""pin" : {"#), "\(json)")
    }

    @Test func aPackThatIsNamedTwiceIsRolledBackOnce() async throws {
        let world = try await updated()
        try await world.succeed("rollback", "aurora", "aurora")
        #expect(try world.staged(.aurora) == StagedFiles(versions[0]))
    }

    @Test func noPackIsRemovedUnlessAllCanBe() async throws {
        let world = try await updatedPacks()
        try await world.succeed("pin", "levels")
        #expect(try await world.run("remove", "aurora", "levels").status == 43)
        #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
        let container = try #require(try Container.open(world.container))
        let lock = try #require(try container.attemptLock(try PackID("oceans")))
        #expect(try await world.run("remove", "aurora", "oceans").status == 42)
        #expect(try world.staged(.aurora) == StagedFiles(versions[1]))
        _ = lock.id
    }

    private struct RollbackOutput: Decodable {
        struct Pack: Decodable { var pack: String }
        struct Failure: Decodable { var status: Int32 }
        var packs: [Pack]?
        var failures: [Failure]?
        var error: Failure?
    }

    @Test(.strace)
    func packsThatWereRolledBackBeforeAnErrorAreReportedWithIt() async throws {
        let world = try await updatedPacks()
        var counts: Set<Int> = []
        // The numbers of the system calls that publish files, up to one that a rollback of two packs does not reach.
        for number in 1...16 {
            var failing = world
            failing.program.wrapper = [
                "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e",
                "trace=rename,renameat,renameat2", "-e",
                "inject=rename,renameat,renameat2:error=EIO:when=\(number)",
                try Program.path.string,
            ]
            let ending = try await failing.run("rollback", "aurora", "oceans", "--json")
            let output = try JSONDecoder()
                .decode(RollbackOutput.self, from: Data(ending.output.utf8))
            let reader = try #require(try ContainerReader.open(world.container))
            let pinned = try reader.pins().keys.map(\.text).sorted()
            let packs = (output.packs ?? []).map(\.pack)
            #expect(packs == pinned, "\(number): \(ending)")
            #expect(output.error?.status ?? 0 == ending.status, "\(number): \(ending)")
            if ending.status != 0, !packs.isEmpty {
                #expect(output.failures?.map(\.status) == [ending.status], "\(ending)")
            }
            counts.insert(packs.count)
            for pack in packs { try await world.succeed("rollback", pack) }
        }
        #expect(counts == [0, 1, 2])
    }

    @Test func aRollbackThatComesBetweenAPlanAndItsWorkHolds() async throws {
        var world = try await updated()
        let container = try #require(try Container.open(world.container))
        let lock = Mutex(try container.attemptLock(.aurora))
        try world.publish(versions[2])
        let application = try ApplicationID("net.example.wallpaper")
        let ending = try await world.run("prefetch", "--quiet") { _ in
            // The run is planning, or has planned, and waits for the lock of the pack.
            try await poll { try container.storedManifest(for: application)?.revision == 3 }
            try lock.withLock { lock in
                _ = try container.rollBack(try #require(lock), now: 1)
                lock = nil
            }
        }
        #expect([0, 43].contains(ending.status))
        #expect(try world.staged(.aurora) == StagedFiles(versions[0]))
        #expect(try container.reader.pin(of: .aurora)?.version == 1)
    }

    /// The system calls that publish files or make them durable, each with the number of its last occurrence.
    private static let failures = [("rename,renameat,renameat2", 3), ("fsync,fdatasync", 6)]
        .flatMap { call in (1...call.1).map { (calls: call.0, number: $0) } }

    @Test(.strace, arguments: failures)
    func aKilledRollbackLeavesTheOldGenerationOrTheNewOneWithItsPin(
        calls: String,
        number: Int
    ) async throws {
        let world = try await updated()
        var killed = world
        killed.program.wrapper = [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e",
            "trace=\(calls)", "-e", "inject=\(calls):signal=KILL:when=\(number)",
            try Program.path.string,
        ]
        // Rolls back, forward, and back again, from any state before the kill.
        for _ in 1...3 {
            let before = try state(world)
            let ending = try await killed.run("rollback", "aurora")
            let after = try state(world)
            #expect(after == before || after == (before == .newer ? .rolledBack : .newer))
            if ending.status == 0 { #expect(after != before) }
            try await world.succeed("prefetch", "--quiet")
            #expect(try state(world) == after)
        }
    }

    @Test(.strace)
    func aGenerationWhosePublicationWasKilledIsReadableAfterARollback() async throws {
        var world = try World()
        try world.publish(versions[0])
        var killed = world
        let generations = world.container.appending("generations/aurora")
        let staging = world.container.appending("staging")
        // Polls until a generation is in its place, but closed to readers.
        var modes: [UInt32] = []
        for number in 1...40 where !modes.contains(0o700) {
            killed.program.wrapper = [
                "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e",
                "trace=fchmod", "-e", "inject=fchmod:signal=KILL:when=\(number)",
                try Program.path.string,
            ]
            _ = try await killed.run("prefetch", "--quiet")
            modes = try self.modes(below: generations)
            // The next run performs additional calls to remove what the killed run left.
            if FileStatus.exists(staging) {
                let staging = try Directory.open(staging)
                for entry in try staging.entries() { try staging.removeTree(entry.name) }
            }
        }
        #expect(modes == [0o700])
        // The missing pack is the only problem.
        let problems = try await world.run("doctor").output.split(separator: "\n").filter {
            $0.hasPrefix("problem: ")
        }
        let missing = "packs of net.example.wallpaper: 1 essential pack is missing: 'aurora'"
        #expect(problems == ["problem: \(missing)"])
        try world.publish(versions[1])
        try await world.succeed("prefetch", "--quiet")
        #expect(try await world.run("doctor").status == 0)
        try await world.succeed("rollback", "aurora")
        #expect(try world.staged(.aurora) == StagedFiles(versions[0]))
        #expect(try self.modes(below: generations) == [0o755, 0o755])
    }

    /// The permission bits of the entries of a directory; empty if it does not exist.
    private func modes(below path: FilePath) throws -> [UInt32] {
        guard FileStatus.exists(path) else { return [] }
        let directory = try Directory.open(path)
        return try directory.entries().compactMap { try directory.status($0.path)?.mode }
    }

    private enum PackState {
        case newer
        case rolledBack
    }

    /// Returns the staged state; fails unless the newer version is unpinned or the older one pinned.
    private func state(_ world: World) throws -> PackState {
        let reader = try #require(try ContainerReader.open(world.container))
        let isPinned = try reader.pin(of: .aurora) != nil
        let staged = try world.staged(.aurora)
        #expect(staged == StagedFiles(versions[isPinned ? 0 : 1]))
        return isPinned ? .rolledBack : .newer
    }
}

extension StoredManifest {
    /// The revision of the manifest.
    fileprivate var revision: Int? { try? Manifest(json: Array(text.utf8)).revision }
}
