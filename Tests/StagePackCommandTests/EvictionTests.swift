import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The packs that are evicted from a container with a quota, and those that stay.
@Suite(.server, .directory)
struct EvictionTests {
    private static let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]

    /// One pack of each policy, and a second one on demand.
    private func packs(essential version: Int = 1) throws -> [SamplePack] {
        [
            try .small(try PackID("essential"), version: version),
            try .small(try PackID("prefetch"), policy: .prefetch([.firstInstallation])),
            try .small(try PackID("rare"), policy: .onDemand),
            try .small(try PackID("often"), policy: .onDemand),
        ]
    }

    /// The size of a pack: about 20,025 bytes of files, and four blocks, rounded up.
    private static let size = 36_600

    /// A world in which everything is staged, the essential pack with a previous generation.
    private func full() async throws -> World {
        var world = try World()
        try world.publish(try packs())
        try await world.succeed("prefetch", "--quiet")
        try await world.succeed("fetch", "rare", "often", "--quiet")
        try world.publish(try packs(essential: 2))
        try await world.succeed("prefetch", "--quiet")
        try use("often", in: world.container, at: .distantFuture)
        return world
    }

    /// Changes the access time of a pack to that of a load.
    private func use(_ id: String, in container: FilePath, at date: Date) throws {
        let reader = try #require(try ContainerReader.open(container))
        let lease = try #require(try reader.lease(try PackID(id), marksUse: false))
        let generation = try Directory.open(lease.content.removingLastComponent())
        guard let file = try generation.file(updatingExisting: "lease") else {
            throw NeverHappened()
        }
        try file.setAccessTime(Int64(min(date.timeIntervalSince1970, 4e9)))
    }

    private func staged(_ world: World) throws -> [String] {
        try world.names(in: "packs")
    }

    /// The number of packs that may stay, the exit status, and the packs that stay.
    private static let quotas: [(count: Int, status: Int32, staying: [String])] = [
        (5, 0, ["essential", "often", "prefetch", "rare"]),
        (4, 0, ["essential", "often", "prefetch", "rare"]),
        (3, 0, ["essential", "often", "prefetch"]),
        (2, 0, ["essential", "prefetch"]),
        (1, 0, ["essential"]),
        // The essential pack alone exceeds the quota, so no other pack is evicted.
        (0, 40, ["essential", "often", "prefetch", "rare"]),
    ]

    @Test(arguments: quotas)
    func aCollectionKeepsTheQuota(
        row: (count: Int, status: Int32, staying: [String])
    ) async throws {
        let world = try await full()
        let quota = "\(row.count * Self.size)"
        let before = try world.names(in: "packs")
        let dry = try await world.run("gc", "--quota", quota, "--dry-run")
        #expect(dry.status == row.status)
        #expect(try world.names(in: "packs") == before)
        #expect(try world.names(in: "generations/essential").count == 2)

        let ending = try await world.run("gc", "--quota", quota)
        #expect(ending.status == row.status)
        #expect(try staged(world) == row.staying)
        #expect(try world.names(in: "generations/essential").count == (row.count == 5 ? 2 : 1))
        #expect(Set(try world.names(in: "generations")) == Set(row.staying))
        func evicted(_ text: String, _ word: String) -> [Substring] {
            text.split(separator: "\n").filter { $0.hasPrefix(word) }
                .map { $0.dropFirst(word.count).replacing(#/\(\d+ seconds? ago|\(now/#, with: "(") }
        }
        #expect(evicted(dry.output, "would evict ") == evicted(ending.output, "evicted "))
        #expect(evicted(dry.output, "would evict ").count == (row.count == 0 ? 1 : 5 - row.count))
        if [1, 2].contains(row.count) {
            let why = try await world.succeed("why", "often")
            #expect(why.contains("often, version 1: evicted, policy 'onDemand', last used "))
        }
    }

    @Test func leasedAndPinnedPacksAreNotEvicted() async throws {
        let world = try await full()
        let reader = try #require(try ContainerReader.open(world.container))
        let lease = try #require(try reader.lease(try PackID("rare")))
        let files = try StagedFiles(lease.content)
        try await world.succeed("pin", "prefetch")
        let refused = try await world.run("gc", "--quota", "0", "--json")
        #expect(refused.status == 40)
        #expect(refused.error == "")
        let result = try JSONNode(json: Array(refused.output.utf8)).value
        #expect(result["error"]?["status"]?.integer == 40, "\(refused)")
        #expect(try OutputSchemas().faults(of: result, as: "gc") == [])
        guard case .array(let containers)? = result["containers"],
            let excess = containers.first?["excess"]?.integer,
            let removable = containers.first?["removable"]?.integer
        else { throw NeverHappened() }
        // The other pack may be evicted, but is too small.
        #expect(excess > removable && removable > 0, "\(refused)")
        let text = try await world.run("gc", "--quota", "0").error
        #expect(
            text.contains(
                " over its quota, and only \(ByteCount(Int64(removable))) could be removed (often), so no pack was"
            ),
            "\(text)"
        )
        #expect(try staged(world) == ["essential", "often", "prefetch", "rare"])
        try await world.succeed("gc", "--quota", "\(3 * Self.size)")
        #expect(try staged(world) == ["essential", "prefetch", "rare"])
        #expect(try StagedFiles(lease.content) == files)
        #expect(try world.staged(try PackID("rare")) == files)
    }

    @Test func packsThatNoManifestOffersAreNotEvicted() async throws {
        var world = try await full()
        try world.publish(try Array(packs(essential: 2).prefix(1)))
        try await world.succeed("plan")
        try await world.succeed("prefetch", "--quiet")
        #expect(try await world.run("gc", "--quota", "0").status == 40)
        #expect(try staged(world) == ["essential", "often", "prefetch", "rare"])
    }

    @Test func aDryRunNamesWhatGCWouldRemoveWithoutAQuota() async throws {
        let world = try await full()
        let nothing = "would remove 0 generations, 0 packs\n"
        #expect(try await world.succeed("gc", "--dry-run") == nothing)
        let dry = try await world.succeed("gc", "--dry-run", "--previous")
        #expect(dry.hasPrefix("would evict essential 1 (36.4 kB, the previous generation)\n"))
        #expect(dry.hasSuffix("would remove 1 generation, 0 packs\n"))
        let done = "removed 1 generation, 0 downloads, 0 leftovers\n"
        #expect(try await world.succeed("gc", "--previous") == done)
        #expect(try await world.succeed("gc", "--previous", "--dry-run") == nothing)
    }

    /// The system calls that remove files from view, each with the number of its last occurrence.
    private static let failures = [("rename,renameat,renameat2", 2), ("fsync", 2), ("unlinkat", 9)]
        .flatMap { call in (1...call.1).map { (calls: call.0, number: $0) } }

    @Test(.strace, arguments: failures)
    func aKilledEvictionLeavesAWholePackOrNone(calls: String, number: Int) async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora, policy: .onDemand)
        try world.publish(pack)
        try await world.succeed("fetch", "aurora", "--quiet")
        var killed = world
        killed.program.wrapper = [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e",
            "trace=\(calls)", "-e", "inject=\(calls):signal=KILL:when=\(number)",
            try Program.path.string,
        ]
        _ = try await killed.run("gc", "--quota", "0")
        let seen = try world.staged(.aurora)
        #expect(seen == nil || seen == StagedFiles(pack))
        try await world.succeed("gc", "--quota", "0")
        for name in ["packs", "generations", "staging"] {
            #expect(try world.names(in: name) == [])
        }
        try await world.succeed("fetch", "aurora", "--quiet")
        #expect(try world.staged(.aurora) == StagedFiles(pack))
    }
}

/// A quota in a registration.
@Suite(.server, .directory, .mountNamespace)
struct QuotaTests {
    private func pack(
        _ id: String,
        _ policy: DownloadPolicy,
        version: Int = 1
    ) throws -> SamplePack {
        try .small(try PackID(id), version: version, policy: policy)
    }

    @Test func aRunKeepsTheQuotaOfTheGroup() async throws {
        let both: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        var installed = try await Installed()
        // Two packs and a half.
        installed.registration.quota = ByteCount(Int64(91_500))
        try installed.install()
        func packs(_ version: Int) throws -> [SamplePack] {
            [
                try pack("essential", .essential(both), version: version),
                try pack("rare", .onDemand),
                try pack("often", .onDemand),
            ]
        }
        let app = "net.example.wallpaper"
        try installed.world.publish(try packs(1))
        #expect(try await installed.run("prefetch", "--app", app, "--quiet").status == 0)
        #expect(try await installed.run("load", "rare", "--app", app, "--quiet").status == 0)
        #expect(try installed.staged() == ["essential": 1, "rare": 1])

        // A third pack evicts the one that was requested before, and the output says so.
        let third = try await installed.run("fetch", "often", "--app", app)
        #expect(third.status == 0)
        #expect(third.output.contains("\nevicted to make room: rare 1 (36.4 kB, policy 'onDemand'"))
        #expect(try installed.staged() == ["essential": 1, "often": 1])

        // An update: the version that it replaces is evicted first, and this is sufficient.
        try installed.world.publish(try packs(2))
        let update = try await installed.run("prefetch", "--app", app)
        #expect(update.status == 0)
        #expect(
            update.output.contains("\nevicted to make room: essential 1 (36.4 kB, the previous")
        )
        #expect(try installed.staged() == ["essential": 2, "often": 1])

        // A pack that does not fit even if all others are evicted.
        installed.registration.quota = ByteCount(Int64(50_000))
        try installed.install()
        let refused = try await installed.run("fetch", "rare", "--app", app, "--quiet")
        #expect(refused.status == 40)
        #expect(
            refused.error == """
                stagepack: error: pack 'rare': the quota of the container leaves 0 B, and it takes \
                36.4 kB
                hint: raise 'quota' in the registration, or remove packs: \
                'stagepack status --app net.example.wallpaper' lists them

                """
        )
    }

    /// Nothing is staged, and there is no container.
    @Test(arguments: [["plan"], ["simulate", "install"], ["prefetch", "--quiet"]])
    func aPackBeyondTheQuotaIsRefusedBeforeThereIsAContainer(command: [String]) async throws {
        var installed = try await Installed()
        installed.registration.quota = ByteCount(Int64(20_000))
        try installed.install()
        try installed.world.publish(try pack("essential", .essential([.firstInstallation])))
        let program = installed.world.program
        let ending = try await program.run(command + ["--app", "net.example.wallpaper"])
        #expect(ending.status == 40, "\(ending)")
        let reason = "the quota of the container leaves 20.0 kB, and it takes 36.4 kB"
        #expect(ending.error.contains(reason), "\(ending)")
    }

    /// A pack that exceeds the quota is reported once, and not also as missing: runs cannot stage it.
    @Test func aPackBeyondTheQuotaIsOneProblem() async throws {
        var installed = try await Installed()
        installed.registration.quota = ByteCount(Int64(20_000))
        try installed.install()
        try installed.world.publish(try pack("essential", .essential([.firstInstallation])))
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 40)
        let report = try await installed.run("doctor")
        #expect(report.status == 3, "\(report)")
        #expect(report.output.contains("the quota of the container leaves"), "\(report)")
        #expect(!report.output.contains("essential pack is missing"), "\(report)")
        installed.registration.quota = .mebibytes(1)
        try installed.install()
        let later = try await installed.run("doctor")
        #expect(later.output.contains("1 essential pack is missing: 'essential'"), "\(later)")
    }
}
