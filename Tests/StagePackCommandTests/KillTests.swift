import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.server, .directory)
struct KillTests {
    /// The archives of odd and of even versions.
    private static let archives: Result<[SamplePack], any Error> = Result {
        try (0...1).map { try SamplePack.large(try .aurora, version: $0 + 1, mebibytes: 24) }
    }
    private static let killsOfSeed = 50

    @Test(arguments: [1, 2, 3, 4] as [UInt64])
    func aReaderSeesNothingOrAWholePackWhereverTheProgramIsKilled(seed: UInt64) async throws {
        var chain = try Chain(seed: seed, archives: try Self.archives.get())
        while chain.kills < Self.killsOfSeed { try await chain.runAndKill() }
        try await chain.finish()
        let allowed = chain.versions * chain.size + chain.kills * (8 << 20)
        #expect(chain.bytesSent < allowed)
        print(
            "seed \(seed): \(chain.kills) kills, \(chain.versions) versions staged,",
            "\(chain.bytesSent) bytes sent,",
            "\((chain.bytesSent - chain.versions * chain.size) / chain.kills) a kill",
            "beyond \(chain.size) a version; seen \(chain.sights)"
        )
    }
}

/// Versions of a pack that are published one after the other, and runs that are killed staging them.
private struct Chain {
    private var world: World
    private var random: SeededGenerator
    private let archives: [SamplePack]
    private let contents: [StagedFiles]
    private(set) var kills = 0
    private(set) var versions = 1
    /// `true` if the version before the published one is staged.
    private var isStaged = false
    /// The numbers of kills after which a reader saw no version, the previous one and the new one.
    private(set) var sights = [0, 0, 0]

    init(seed: UInt64, archives: [SamplePack]) throws {
        world = try World()
        random = SeededGenerator(seed: seed)
        self.archives = archives
        contents = archives.map(StagedFiles.init)
        try world.publish(pack(1)) { $0.slowed(to: 80 << 20) }
    }

    var size: Int { archives[0].archive.count }

    /// The bytes of archives that the server sent.
    var bytesSent: Int {
        (1...versions).reduce(0) { $0 + world.server.counts(for: pack($1).path).bytes }
    }

    private func pack(_ version: Int) -> SamplePack {
        var pack = archives[version % 2]
        pack.pack.version = version
        pack.pack.archive?.url = "packs/\(version)"
        return pack
    }

    /// Runs the program, kills it at a random moment, and checks the remaining files.
    mutating func runAndKill() async throws {
        // Early kills interrupt the download, late ones unpacking and publishing.
        let limit = Bool.random(using: &random) ? 300 : 700
        let moment = Duration.milliseconds(Int.random(in: 0..<limit, using: &random))
        let kept = partSize(below: world.container.appending("downloads"))
        let path = pack(versions).path
        let count = world.server.requests(for: path).count
        let ending = try await world.run("prefetch", "--quiet") { running in
            try await Task.sleep(for: moment)
            running.send(SIGKILL)
        }
        // Otherwise a request of this run could count as one of the next run.
        try await world.server.settle()
        let starts = world.server.requests(for: path).dropFirst(count).map { $0.rangeStart ?? 0 }
        #expect(starts.isEmpty || starts == [Int(kept)], "what a killed run left is not continued")
        let hasArrived = try look(after: ending)
        if ending.status == Program.killed {
            kills += 1
        } else {
            #expect(ending == Program.Ending(status: 0, output: "", error: ""))
            #expect(hasArrived)
        }
        if hasArrived {
            // A run that is killed after publishing leaves the archive; the version after the next one has the same
            // archive, whose bytes must be counted again.
            let downloads = try #require(
                try Directory.open(world.container).directory("downloads")
            )
            for name in try downloads.entries().map(\.name) { _ = try downloads.remove(name) }
            isStaged = versions % 2 == 0
            if !isStaged { try await world.succeed("remove", "aurora") }
            versions += 1
            try world.publish(pack(versions)) { $0.slowed(to: 80 << 20) }
        }
    }

    /// Compares every byte that a reader sees, and returns whether it is the new version.
    private mutating func look(after ending: Program.Ending) throws -> Bool {
        guard let seen = try world.staged(try .aurora) else {
            #expect(!isStaged, "version \(versions - 1) is gone")
            sights[0] += 1
            return false
        }
        let isNew = seen == contents[versions % 2]
        if !isNew { #expect(isStaged && seen == contents[(versions - 1) % 2]) }
        sights[isNew ? 2 : 1] += 1
        return isNew
    }

    /// Runs the program to its end, and expects that no files of earlier runs remain.
    func finish() async throws {
        try await world.succeed("prefetch", "--quiet")
        #expect(try world.staged(try .aurora) == contents[versions % 2])
        try await world.succeed("gc", "--previous")
        for name in ["staging", "downloads"] { #expect(try world.names(in: name) == []) }
        #expect(try world.names(in: "generations/aurora").count == 1)
        // Temporary files are kept for an hour, since nothing shows that their process has ended.
        let manifests = try world.names(in: "manifest").filter { !$0.hasSuffix(".tmp") }
        #expect(manifests == ["net.example.wallpaper.json"])
    }
}
