import FoundationEssentials
import Glibc
import StageDigest
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Indexed packs from a recipe to a reader, tested only through the program.
@Suite(.server, .directory)
struct IndexedTests {
    @Test func aPackIsPackagedServedStagedAndUpdated() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a/large": content(3_000_000, 1), "b": Array("text".utf8), "c": []])
        let first = try await publisher.package(version: 1)
        try await world.succeed("fetch", "levels")
        #expect(try world.staged(try PackID("levels")) == publisher.files())
        var changed = content(3_000_000, 1)
        changed[1_500_000] ^= 1
        try publisher.write(["a/large": changed, "d": Array("new".utf8)])
        let second = try await publisher.package(version: 2, base: first)
        let told = try await world.program.run(["diff", first, second, "--json"])
        struct Report: Decodable { var updates: [Update] }
        struct Update: Decodable { var downloadSize, requests, reusedFiles, changedFiles: Int }
        let report = try JSONDecoder().decode(Report.self, from: Data(told.output.utf8))
        let update = try #require(report.updates.first)
        #expect(update.reusedFiles == 2 && update.changedFiles == 2)
        let before = publisher.bytesSent
        let json = try await world.succeed("fetch", "levels", "--json")
        #expect(json.contains("\"staged\""))
        #expect(try world.staged(try PackID("levels")) == publisher.files())
        // The update has differences of the large file, the bytes of the new one, and the delta of the index.
        #expect(publisher.bytesSent - before < 1000)
        let index = try StoredIndex(at: FilePath(second)).reference.deltas[0].size.rawValue
        #expect(Int64(publisher.bytesSent - before) + index == Int64(update.downloadSize))
        #expect(update.requests == 4)
        try await world.succeed("verify", "levels")
    }

    /// A bundle is downloaded in many ranges.
    @Test func linesNameEachFileOnce() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["large": noise(14 << 20)])
        _ = try await publisher.package(version: 1)
        let ending = try await world.run("fetch", "levels", "--progress", "lines")
        #expect(ending.status == 0)
        let lines = ending.error.split(separator: "\n").filter { $0.contains(": fetching ") }
        #expect(lines.contains { $0.contains("/b/") })
        #expect(Set(lines).count == lines.count, "\(ending.error)")
    }

    @Test func packagingReportsCopiedBytes() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": content(100_000, 1), "b": content(300_000, 2)])
        let first = try await publisher.package(version: 1)
        try publisher.write(["b": [1]])
        let recipe = world.directory.path.appending("recipe.json").string
        let arguments = ["package", recipe, "--indexed", "-o", publisher.store.string]
        let based = arguments + ["--base", first, "--no-archive"]
        let text = try await world.program.run(based)
        #expect(text.output.contains("of which new: 1 B, copied from older bundles: 100.0 kB\n"))
        let json = try await world.program.run(based + ["--json"])
        #expect(json.output.contains("\"newBytes\" : 1,"))
        #expect(json.output.contains("\"repackedBytes\" : 100000,"))
        let plain = try await world.program.run(arguments + ["--no-archive"])
        #expect(!plain.output.contains("copied"))
    }

    @Test func packagingReportsTheBundlesThatTheStoreLacks() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": content(100_000, 1)])
        let first = try await publisher.package(version: 1)
        try publisher.write(["b": content(300_000, 2)])
        let second = try await publisher.package(version: 2, base: first)
        let recipe = world.directory.path.appending("recipe.json").string
        let package = [
            "package", recipe, "--indexed", "--no-archive", "-o", publisher.store.string,
        ]
        struct Report: Decodable { var missingBundles, damagedBundles: [String] }
        func report() async throws -> Report {
            let ending = try await world.program.run(package + ["--base", second, "--json"])
            #expect(ending.status == 0 && ending.error.isEmpty)
            return try JSONDecoder().decode(Report.self, from: Data(ending.output.utf8))
        }
        #expect(try await report().missingBundles == [])
        let digests = try StoredIndex(at: FilePath(second)).index.bundles.map { "\($0.digest)" }
        let names = try digests.map { try #require(FilePath($0).lastComponent) }
        try #require(names.count == 2)
        let bundles = try Directory.open(publisher.store.appending("b"))
        try bundles.remove(names[0])
        #expect(try await report().missingBundles == [digests[0]])
        try publisher.write(["b": content(300_000, 3)])
        try bundles.write([1], to: names[1], durably: false)
        let damaged = try await report()
        #expect(damaged.missingBundles == [digests[0]] && damaged.damagedBundles == [digests[1]])
        for options in [[], ["-q"]] {
            let text = try await world.program.run(package + ["--base", second] + options)
            #expect(text.status == 0)
            let warnings =
                "stagepack: warning: bundles that this version needs are missing in the store: b/\(digests[0]). "
                + "Upload the version to a server that has them, or package it without '--base'\n"
                + "stagepack: warning: bundles of the older version are damaged in the store: b/\(digests[1]). "
                + "This version does not need them. Restore them for clients of older versions; 'stagepack store verify' finds "
                + "all damage\n"
            #expect(text.error == warnings)
        }
        // Without a base, the version contains all frames that it needs.
        let whole = try await world.program.run(package)
        #expect(whole.status == 0 && whole.error.isEmpty)
    }

    /// Patches of several levels differ in size, and an existing one stays.
    @Test func patchesHaveTheLevelOfTheCommandLine() async throws {
        struct Update: Decodable {
            var patch: String
            var patchBytes: Int?
        }
        struct Report: Decodable {
            var file: String?
            var updates: [Update]
        }
        let world = try World()
        let publisher = try IndexedPublisher(world)
        let old = content(1_000_000, 1)
        var new = old
        for offset in stride(from: 3000, to: new.count, by: 7000) { new[offset] ^= 1 }
        try publisher.write(["large": old])
        let first = try await publisher.package(version: 1)
        try publisher.write(["large": new])
        // A delta set contains each of the copies completely.
        for (name, copy) in nearCopies(of: content(200_000, 2), count: 4) {
            try publisher.write(["copy \(name)": copy])
        }
        let recipe = world.directory.path.appending("recipe.json").string
        let package = [
            "package", recipe, "--indexed", "--no-archive", "-o", publisher.store.string, "--base",
            first,
        ]
        let fast: Report = try await world.report(package + ["--level", "1"])
        let index = try #require(fast.file)
        #expect(fast.updates.map(\.patch) == ["made"])
        let delta = ["delta", index, "--from", first]
        let stays: Report = try await world.report(delta + ["--level", "19"])
        #expect(stays.updates.map(\.patch) == ["present"])
        let size = try #require(fast.updates[0].patchBytes)
        #expect(stays.updates[0].patchBytes == size)
        func again(_ options: [String]) async throws -> Int {
            let patches = try Directory.open(publisher.store.appending("p"))
            for name in try patches.entries().map(\.name) { try patches.remove(name) }
            let report: Report = try await world.report(delta + options)
            return report.updates[0].patchBytes ?? .max
        }
        #expect(try await again(["--level", "1"]) == size)
        let slow = try await again(["--level", "19"])
        #expect(slow < size)
        #expect(try await again([]) == slow)
    }

    @Test func oneFileIsFetchedWithoutTheOthers() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        let large = content(500_000, 1)
        try publisher.write(["a/large": large, "b": Array("text".utf8), "c": content(3_000_000, 2)])
        let first = try await publisher.package(version: 1)
        for (file, expected) in [("a/large", large), ("b", Array("text".utf8))] {
            let path = try await world.succeed("load", "levels", "--file", file)
            #expect(try bytes(of: FilePath(String(path.dropLast()))) == expected)
        }
        #expect(publisher.bytesSent < 600_000)
        #expect(try world.staged(try PackID("levels")) == nil)
        // Content that is staged already is requested from no server.
        let before = publisher.bytesSent
        try await world.succeed("load", "levels", "--file", "a/large")
        #expect(publisher.bytesSent == before)
        let missing = try await world.run("load", "levels", "--file", "d")
        #expect(missing.status == 16 && missing.error.contains("has no file 'd'"), "\(missing)")
        let directory = try await world.run("load", "levels", "--file", "a")
        #expect(directory.status == 64 && directory.error.contains("'a' is a directory"))
        try await world.succeed("load", "levels", "--file", "b", "--offline")
        #expect(try await world.run("load", "levels", "--file", "c", "--offline").status == 2)
        // The whole pack reuses the files that were fetched one by one.
        try await world.succeed("fetch", "levels")
        #expect(try await world.run("load", "levels", "--file", "a") == directory)
        #expect(publisher.bytesSent - before < 3_100_000)
        #expect(try world.staged(try PackID("levels")) == publisher.files())
        let staged = try await world.succeed("load", "levels", "--file", "b")
        #expect(staged.hasSuffix("/content/b\n"))
        // Files of versions that are no longer offered are removed.
        try publisher.write(["b": [1]])
        _ = try await publisher.package(version: 2, base: first)
        try await world.succeed("fetch", "levels")
        try await world.succeed("gc")
        #expect(try world.names(in: "files") == [])
    }

    @Test func aDifferenceOfAnIndexIsNamedAsOne() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(300_000)])
        let first = try await publisher.package(version: 1)
        try publisher.write(["a": noise(300_000) + [1]])
        let second = try await publisher.package(version: 2, base: first)
        let folder = FilePath(first).removingLastComponent()
        let names = try Directory.open(folder).entries().map(\.path.string)
        let name = try #require(names.first { $0.contains(".from.") })
        let path = folder.appending(name).string
        for arguments in [["diff", path, first], ["delta", path, "--from", first]] {
            let ending = try await world.program.run(arguments)
            #expect(ending.status == 64, "\(ending)")
            let message = "'\(path)' is the delta of an index, and no index\n"
            #expect(ending.error.contains(message + "hint: name an index: "), "\(ending)")
            for index in [first, second] { #expect(ending.error.contains("'\(index)'")) }
        }
    }

    @Test func aFileThatIsNotAnIndexIsRefused() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": [1]])
        let first = try await publisher.package(version: 1)
        let recipe = world.directory.path.appending("recipe.json").string
        for (arguments, words) in [
            (["diff", recipe, first], "is not the index of a pack"),
            (["package", recipe, "--base", first], "'--base' is for '--indexed'"),
            (["package", recipe, "--no-deltas"], "'--no-deltas' is for '--indexed'"),
            (["package", recipe, "--indexed", "--no-deltas"], "'--no-deltas' is for '--base'"),
            (
                ["delta", first, "--from", first, "--level", "0"],
                "'--level' is a number from 1 to 22"
            ),
            (
                ["delta", first, "--from", first, "--level", "23"],
                "'--level' is a number from 1 to 22"
            ),
            (
                ["delta", first, "--from", first, "--level", "3", "--no-patches"],
                "'--level' is for patches: leave out '--no-patches'"
            ),
            (["store", "gc", "."], "--manifest"),
            (["store", "gc", ".", "--manifest", recipe, "--keep", "30"], "30"),
            (["package", recipe, "--indexed", "--base", recipe], "is not the index of a pack"),
            (["package", recipe, "--indexed", "--format", "tar"], "'--format' is for archives"),
        ] {
            let ending = try await world.program.run(arguments)
            #expect(ending.status == 64 && ending.error.contains(words), "\(arguments): \(ending)")
        }
    }

    @Test(arguments: [1, 2] as [UInt64])
    func anUpdateIsWholeOrNotThereWhereverItIsKilled(seed: UInt64) async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        var random = SeededGenerator(seed: seed)
        // Two trees that share half of their files, and alternate as versions.
        var trees: [StagedFiles] = []
        var indexes: [String] = []
        for number in 0...1 as ClosedRange<UInt64> {
            var patched = content(3_000_000, 5)
            for offset in stride(from: Int(number), to: patched.count, by: 8192) {
                let part = content(4096, number + UInt64(offset))
                patched.replaceSubrange(offset..<min(offset + 4096, patched.count), with: part)
            }
            try publisher.write(
                [
                    "same": content(6_000_000, 1), "other": content(12_000_000, 2 + number),
                    "patched": Array(patched.prefix(3_000_000)),
                ]
            )
            indexes.append(try await publisher.package(version: 1, base: indexes.last))
            trees.append(try publisher.files())
        }
        var version = 1
        try publisher.publish(indexes[1], version: version) { $0.slowed(to: 25 << 20) }
        var kills = 0
        // On a busy machine every update may be killed before it ends; then one runs without a kill.
        while kills < 50 || version < 3 {
            let moment = Duration.milliseconds(Int.random(in: 0..<500, using: &random))
            let isKilled = kills < 50
            let ending = try await world.run("fetch", "levels", "--quiet") { running in
                guard isKilled else { return }
                try await Task.sleep(for: moment)
                running.send(SIGKILL)
            }
            let seen = try world.staged(try PackID("levels"))
            let isNew = seen == trees[version % 2]
            if ending.status == Program.killed {
                kills += 1
                #expect(isNew || seen == (version == 1 ? nil : trees[(version - 1) % 2]))
            } else {
                #expect(ending == Program.Ending(status: 0, output: "", error: ""))
                #expect(isNew)
            }
            if isNew {
                version += 1
                try publisher.publish(indexes[version % 2], version: version) {
                    $0.slowed(to: 25 << 20)
                }
            }
        }
        // Six ranges of at most 4 MiB, or two of 2 MiB, were in transit at each kill, and not all of their bytes were
        // lost.
        let allowed = version * 16_000_000 + kills * (6 << 20)
        #expect(publisher.bytesSent < allowed, "\(publisher.bytesSent) for \(version) versions")
        try await world.succeed("fetch", "levels", "--quiet")
        #expect(try world.staged(try PackID("levels")) == trees[version % 2])
        try await world.succeed("gc", "--previous")
        #expect(try world.names(in: "staging") == [])
        print(
            "seed \(seed): \(kills) kills, \(version) versions, \(publisher.bytesSent) bytes sent"
        )
    }
}

/// Incompressible bytes, the same in each run.
private func content(_ count: Int, _ seed: UInt64) -> [UInt8] {
    var random = SeededGenerator(seed: seed)
    var bytes: [UInt8] = []
    bytes.reserveCapacity(count + 8)
    while bytes.count < count {
        unsafe withUnsafeBytes(of: UInt64.random(in: 0 ... .max, using: &random)) {
            unsafe bytes += $0
        }
    }
    return Array(bytes.prefix(count))
}
