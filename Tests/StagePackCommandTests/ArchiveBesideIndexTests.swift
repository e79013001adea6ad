import FoundationEssentials
import Glibc
import StageModel
import StagePublish
import StageTesting
import SystemPackage
import Testing

/// Indexed packs with an archive of the same files, tested only through the program.
@Suite(.server, .directory)
struct ArchiveBesideIndexTests {
    /// Returns files of `size` bytes that are equal but for a byte every few kilobytes.
    private func tree(_ version: UInt8, size: Int = 200_000) -> [String: [UInt8]] {
        var files: [String: [UInt8]] = ["small": [version]]
        for number in 0..<8 as Range<UInt8> {
            var bytes = noise(size)
            for offset in stride(from: 0, to: size, by: 4096) { bytes[offset] = number &+ version }
            files["large/\(number)"] = bytes
        }
        return files
    }

    private struct Transfer: Decodable, Equatable {
        var way: String?
        var objects: Int
        var archive, patch, differences: Int?
    }

    private struct Plans: Decodable {
        struct Plan: Decodable { var packs: [Pack] }
        struct Pack: Decodable {
            var transfer: Transfer?
        }

        var plans: [Plan]?
        /// The results of a run.
        var runs: [Plan]?
    }

    /// Offers a version for the first installation, and returns the plan.
    private func plan(
        _ index: String,
        _ version: Int,
        of publisher: IndexedPublisher
    ) async throws -> (pack: Pack, planned: Transfer?, text: String) {
        let world = publisher.world
        var manifest = try Manifest(json: publisher.manifest(of: index, version: version))
        manifest.packs[0].policy = .essential(Set(InstallationEvent.allCases))
        world.server.answer("/manifest.json", with: .content(manifest.json()))
        let json = try await world.succeed("plan", "--json")
        let plans = try JSONDecoder().decode(Plans.self, from: Data(json.utf8))
        let transfer = plans.plans?.first?.packs.first?.transfer
        return (manifest.packs[0], transfer, try await world.succeed("plan"))
    }

    @Test func anInstallationTakesTheArchiveAndAnUpdateWhatChanged() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(tree(1))
        let first = try await publisher.package(version: 1, archive: true)
        let said = try await world.run("fetch", "levels", "--progress", "lines").error
        #expect(said.contains("levels: by its archive ("), "\(said)")
        #expect(try world.staged(try PackID("levels")) == publisher.files())
        let archive = publisher.bytesSent(of: ["a"])
        #expect(archive > 200_000 && archive < 400_000)
        #expect(publisher.bytesSent(of: ["b", "d"]) == 0)
        try publisher.write(["new": noise(500, seed: 3)])
        let second = try await publisher.package(version: 2, base: first, archive: true)
        try await world.succeed("fetch", "levels")
        #expect(try world.staged(try PackID("levels")) == publisher.files())
        #expect(publisher.bytesSent(of: ["a"]) == archive)
        #expect(publisher.bytesSent(of: ["b", "d"]) < 1000)
        try await world.succeed("verify", "levels")
        struct Report: Decodable {
            struct Update: Decodable { var transfer: Transfer }
            var downloadSize, requests: Int
            var transfer: Transfer
            var updates: [Update]
        }
        let told = try await world.program.run(["diff", first, second, "--json"])
        let report = try JSONDecoder().decode(Report.self, from: Data(told.output.utf8))
        #expect(report.requests == 2)
        #expect(report.downloadSize == report.transfer.archive)
        #expect(report.transfer.way == "archive" && report.transfer.objects > 1_500_000)
        #expect(report.updates.first?.transfer.way == "objects")
        let text = try await world.program.run(["diff", first, second]).output
        #expect(text.contains("in 2 requests; by its archive ("), "\(text)")
        #expect(text.contains(" since objects have "), "\(text)")
    }

    /// The table of the delta set is too large beside the archive, so the update does not request it.
    @Test func aDiffNamesTheBytesThatTheUpdateTransfers() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        let part = noise(5000)
        func write(_ version: UInt8) throws {
            var files: [String: [UInt8]] = [:]
            for number in 0..<24 as Range<UInt8> {
                var bytes = (0..<14).flatMap { _ in part }
                (bytes[1000], bytes[2000]) = (number, version)
                files["\(number)"] = bytes
            }
            try publisher.write(files)
        }
        try write(1)
        let first = try await publisher.package(version: 1, archive: true)
        try await world.succeed("fetch", "levels", "--quiet")
        try write(2)
        // A set is kept only for a version without an archive; then the store has both.
        _ = try await publisher.package(version: 2, base: first)
        let second = try await publisher.package(version: 2, base: first, archive: true)
        struct Report: Decodable {
            struct Update: Decodable {
                var downloadSize, requests: Int
                var transfer: Transfer
            }
            var updates: [Update]
        }
        let told = try await world.program.run(["diff", first, second, "--json"])
        let report = try JSONDecoder().decode(Report.self, from: Data(told.output.utf8))
        let update = try #require(report.updates.first)
        let folders = ["a", "b", "d", "i"]
        let before = publisher.bytesSent(of: folders)
        try await world.succeed("fetch", "levels", "--quiet")
        #expect(update.transfer.way == "archive" && update.requests == 2)
        #expect(update.downloadSize == publisher.bytesSent(of: folders) - before)
        let set = try StoredIndex(at: FilePath(second)).reference.deltas.first?.frames
        #expect(Int(try #require(set).size.rawValue) < update.transfer.archive ?? 0)
    }

    /// A version whose archive is on the server is staged, also if the server lacks objects.
    @Test func anUpdateWithoutItsObjectsTakesTheArchiveAndSaysWhy() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(tree(1))
        let first = try await publisher.package(version: 1, archive: true)
        try await world.succeed("fetch", "levels")
        try publisher.write(["new": noise(500, seed: 3)])
        _ = try await publisher.package(version: 2, base: first, archive: true)
        try publisher.answerForBundles { _ in .status(404) }
        let ending = try await world.run("fetch", "levels", "--progress", "lines")
        #expect(ending.status == 0, "\(ending)")
        let reasons = [
            "levels: by objects (", "was answered with status 404", "levels: by its archive (",
            ", since objects are missing or damaged",
        ]
        for reason in reasons { #expect(ending.error.contains(reason), "\(ending)") }
        #expect(try world.staged(try PackID("levels")) == publisher.files())
        try await world.succeed("verify", "levels")
    }

    @Test func aPlanSaysWhichWayAndWhy() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(tree(1))
        let first = try await publisher.package(version: 1, archive: true)
        var (pack, planned, text) = try await plan(first, 1, of: publisher)
        func bytes(_ count: ByteCount?) throws -> Int { Int(try #require(count).rawValue) }
        let expected = Transfer(
            way: "archive",
            objects: try bytes(pack.index?.bundleSize) + bytes(pack.index?.size),
            archive: try bytes(pack.archive?.size) + bytes(pack.index?.fileTableDelta?.size)
        )
        #expect(planned == expected)
        #expect(text.contains("not staged yet; by its archive ("), "\(text)")
        try await world.succeed("fetch", "levels")
        try publisher.write(tree(2))
        let second = try await publisher.package(
            version: 2,
            base: first,
            patches: true,
            archive: true
        )
        (pack, planned, text) = try await plan(second, 2, of: publisher)
        // The index is staged already, and no transfer is smaller than the patch.
        let patch = try bytes(pack.index?.deltas.first?.patch?.size)
        let archive = try bytes(pack.archive?.size)
        #expect(planned?.way == "patch" && planned?.archive == archive)
        #expect(planned?.patch == patch && patch < planned?.objects ?? 0)
        #expect(text.contains("version 1 is staged; by a patch ("), "\(text)")
        let before = publisher.bytesSent
        let output = try await world.succeed("fetch", "levels", "--json")
        #expect(publisher.bytesSent - before == patch)
        let result = try JSONDecoder().decode(Plans.self, from: Data(output.utf8))
        #expect(result.runs?.first?.packs.first?.transfer == planned)
        #expect(try world.staged(try PackID("levels")) == publisher.files())
        try await world.succeed("verify", "levels")
    }

    @Test(arguments: [1, 2] as [UInt64])
    func anInstallationThatIsKilledContinuesWithTheArchive(seed: UInt64) async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        var random = SeededGenerator(seed: seed)
        try publisher.write(tree(1, size: 2_000_000))
        let index = try await publisher.package(version: 1, archive: true)
        try publisher.publish(index, version: 1) { $0.slowed(to: 8 << 20) }
        let size = try Int(
            #require(Manifest(json: publisher.manifest(of: index, version: 1)).packs.first?.archive)
                .size.rawValue
        )
        let files = try publisher.files()
        var kills = 0
        while try world.staged(try PackID("levels")) == nil {
            let moment = Duration.milliseconds(Int.random(in: 0..<400, using: &random))
            let isKilled = kills < 10
            let ending = try await world.run("fetch", "levels", "--quiet") { running in
                guard isKilled else { return }
                try await Task.sleep(for: moment)
                running.send(SIGKILL)
            }
            if ending.status == Program.killed { kills += 1 }
        }
        #expect(try world.staged(try PackID("levels")) == files)
        #expect(publisher.bytesSent(of: ["b", "d"]) == 0)
        // Bytes that the server sent and the killed process did not read are sent again.
        #expect(publisher.bytesSent(of: ["a"]) <= size + kills * (1 << 20))
        try await world.succeed("verify", "levels")
        try await world.succeed("gc", "--previous")
        #expect(try world.names(in: "staging") == [])
        #expect(try world.names(in: "downloads") == [])
    }
}
