import FoundationEssentials
import Glibc
import StageModel
import StagePublish
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Stores that several publishers use, that cannot be written, or whose indexes have other names than their digests.
@Suite(.server, .directory)
struct StoreAccessTests {
    private let world: World
    private let publisher: IndexedPublisher

    init() throws {
        world = try World()
        publisher = try IndexedPublisher(world)
    }

    private var recipe: String { world.directory.path.appending("recipe.json").string }
    private var manifest: String { world.directory.path.appending("own.json").string }

    private func createManifest() async throws {
        let create = ["manifest", "create", "--application", "net.example", "-o", manifest]
        let created = try await world.program.run(create)
        try #require(created.status == 0, "\(created)")
    }

    /// Adds an index to the manifest.
    private func add(
        _ index: String,
        version: Int,
        by program: Program? = nil,
        _ more: String...
    ) async throws -> Program.Ending {
        let command = ["manifest", "add", manifest, index, "--recipe", recipe]
        return try await (program ?? world.program)
            .run(command + ["--pack-version", "\(version)"] + more)
    }

    private func collectGarbage() async throws {
        let collect = ["store", "gc", publisher.store.string, "--manifest", manifest]
        #expect(try await world.program.run(collect).status == 0)
    }

    /// Packages a file, adds a byte to it, and returns the index, which does not contain the byte.
    private func packageThenChange() async throws -> String {
        try publisher.write(["a": noise(300_000)])
        let first = try await publisher.package(version: 1)
        try publisher.write(["a": noise(300_000) + [1]])
        return first
    }

    private func removeStore() async throws {
        let program = Program(wrapper: ["/bin/rm", "-rf", publisher.store.string])
        #expect(try await program.run([]).status == 0)
    }

    @Test func equalPacksOfConcurrentPublishersAreAllRecorded() async throws {
        try publisher.write(["a": noise(1000)])
        let packs = (1...8).map { "pack-\($0)" }
        func path(_ pack: String) -> String { "\(world.directory.path)/\(pack).json" }
        for pack in packs {
            let text = #"""
                {"assetPackID": "\#(pack)", "downloadPolicy": {"onDemand": {}},
                 "fileSelectors": [{"directory": "."}], "sourceRoot": "\#(publisher.tree)"}
                """#
            let name = FilePath.Component(stringLiteral: "\(pack).json")
            try world.directory.write(Array(text.utf8), to: name, durably: false)
        }
        for _ in 1...3 {
            try await removeStore()
            _ = try? world.directory.remove("own.json")
            try await createManifest()
            let (program, store) = (world.program, publisher.store.string)
            let endings = try await withThrowingTaskGroup(of: Program.Ending.self) { group in
                for pack in packs {
                    let command = ["package", path(pack), "--indexed", "-o", store, "--quiet"]
                    group.addTask {
                        try await pollForValue("'\(pack)' is never packaged") {
                            let ending = try await program.run(command)
                            // On a busy machine, the others may hold a lock for longer than a command waits for it.
                            return ending.status == 42 ? nil : ending
                        }
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            for ending in endings { #expect(ending.status == 0, "\(ending)") }
            let indexes = try Directory.open(publisher.store.appending("i")).entries()
                .filter { !$0.path.string.hasPrefix(".") }
            let index = publisher.store.pushing("i").appending(try #require(indexes.first).name)
            for pack in packs {
                let added = try await world.program.run([
                    "manifest", "add", manifest, index.string, "--recipe", path(pack),
                    "--pack-version", "1",
                ])
                #expect(added.status == 0, "\(added)")
            }
            let hidden = try Directory.open(publisher.store).entries().map(\.path.string)
            #expect(!hidden.contains { $0.hasSuffix(".lock") }, "\(hidden)")
        }
    }

    @Test func eachOfTwoStoresOfAManifestIsCollectedAndVerified() async throws {
        try publisher.write(["a": noise(1000)])
        let index = try await publisher.package(version: 1)
        try await createManifest()
        #expect(try await add(index, version: 1).status == 0)
        let text = #"""
            {"assetPackID": "music", "downloadPolicy": {"onDemand": {}},
             "fileSelectors": [{"directory": "."}], "sourceRoot": "\#(publisher.tree)"}
            """#
        try world.directory.write(Array(text.utf8), to: "music.json", durably: false)
        let music = world.directory.path.appending("music.json").string
        let other = world.directory.path.appending("other")
        try publisher.write(["b": [1]])
        let package = ["package", music, "--indexed", "--no-archive", "-o", other.string]
        #expect(try await world.program.run(package).status == 0)
        let entries = try Directory.open(other.appending("i")).entries()
        let entry = try #require(entries.first { !$0.path.string.hasPrefix(".") })
        let second = other.appending("i").appending(entry.name).string
        let add = ["manifest", "add", manifest, second, "--recipe", music, "--pack-version", "1"]
        #expect(try await world.program.run(add).status == 0)
        for store in [publisher.store.string, other.string] {
            for command in ["gc", "verify"] {
                let words = ["store", command, store, "--manifest", manifest]
                let ending = try await world.program.run(words)
                #expect(ending.status == 0, "\(ending)")
                let text = ending.output + ending.error
                #expect(text.contains("\nin other stores: 1 pack\n"), "\(ending)")
            }
        }
    }

    /// The directory of delta sets cannot be created, as on a full disk.
    @Test func aVersionWithoutItsUpdatesIsNamedWithTheCommandThatMakesThem() async throws {
        let first = try await packageThenChange()
        let store = try Directory.open(publisher.store)
        try store.createLink("d", to: "nowhere")
        let command = ["package", recipe, "--indexed", "-o", publisher.store.string]
        let more = ["--no-archive", "--no-patches", "--base", first]
        let ending = try await world.program.run(command + more)
        #expect(ending.status == 31, "\(ending)")
        let index = "\(publisher.store)/i/"
        #expect(ending.error.contains("the version is complete, with the index '\(index)"))
        let start = "hint: 'stagepack "
        let hint = try #require(ending.error.split(separator: "\n").last)
        #expect(hint.hasPrefix("\(start)delta \(index)"), "\(ending)")
        #expect(hint.hasSuffix(" --from \(first)' makes the rest"), "\(ending)")
        _ = try store.remove("d")
        let words = hint.dropFirst(start.count).prefix { $0 != "'" }.split(separator: " ")
        let made = try await world.program.run(words.map { String($0) })
        #expect(made.status == 0 && made.output.contains(" instead of "), "\(made)")
    }

    /// The store is locked as for a garbage collection, which removes the base after the command has read it.
    @Test func aBaseThatACollectionRemovesBeforeTheLockIsMissed() async throws {
        let first = try await packageThenChange()
        let store = try Directory.open(publisher.store)
        // The command creates the directory of bundles after it has read the base, and then waits for the lock.
        try store.rename("b", to: "away", in: store)
        let lock = Mutex(try LockFile.attempt(".lock", in: store, mode: .exclusive))
        let bundles = publisher.store.appending("b")
        let command = ["package", recipe, "--indexed", "-o", publisher.store.string]
        let ending = try await world.program.run(command + ["--base", first]) { _ in
            try await poll("the command does not begin") { FileStatus.exists(bundles) }
            let index = FilePath(first)
            let name = try #require(index.lastComponent)
            _ = try Directory.open(index.removingLastComponent()).remove(name)
            lock.withLock { $0 = nil }
        }
        #expect(ending.status == 31, "\(ending)")
        let message = "cannot open '\(first)': No such file or directory"
        #expect(ending.error.contains(message), "\(ending)")
    }

    /// Without a check between its pieces, the command would compress the rest, publish it, and succeed.
    @Test func anInterruptedPackagingOfALargeFilePublishesNothing() async throws {
        // Text, which is compressed slowly.
        let digits = noise(40 << 20).map { UInt8(ascii: "a") + $0 % 16 }
        try publisher.write(["a": digits])
        let bundles = publisher.store.appending("b")
        let command = ["package", recipe, "--indexed", "-o", publisher.store.string]
        func interrupted() async throws -> Program.Ending {
            try await world.program.run(command + ["--no-archive"]) { running in
                try await poll("nothing is compressed") {
                    guard let folder = try? Directory.open(bundles) else { return false }
                    return try folder.entries().contains { entry in
                        (try folder.status(entry.path)?.size ?? 0) > 0
                    }
                }
                running.send(SIGTERM)
            }
        }
        var ending = try await interrupted()
        // On a busy machine, the signal may come after the end.
        for _ in 0..<4 where ending.status == 0 {
            try await removeStore()
            ending = try await interrupted()
        }
        #expect(ending.status == 130, "\(ending)")
        #expect(ending.error.contains("packaging was cancelled"), "\(ending)")
        #expect(try Directory.open(bundles).entries().isEmpty)
        #expect(!FileStatus.exists(publisher.store.appending("i")))
    }

    @Test(.mountNamespace)
    func anIndexInAReadOnlyStoreIsOfferedWithAWarning() async throws {
        try publisher.write(["a": noise(1000)])
        let index = try await publisher.package(version: 1)
        try await createManifest()
        #expect(try await add(index, version: 1).status == 0)
        try await collectGarbage()
        var program = world.program
        let own = program.wrapper.isEmpty ? [try Program.path.string] : program.wrapper
        let mount =
            #"mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 99; exec "$@""#
        let store = publisher.store.string
        program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", mount, store] + own
        let added = try await add(index, version: 2, by: program)
        #expect(added.status == 0, "\(added)")
        #expect(added.error.contains("warning: the store is read-only"), "\(added)")
    }

    @Test func anIndexAtAURLWithAQueryHasItsObjectsAndIsABase() async throws {
        let first = try await packageThenChange()
        let second = try await publisher.package(version: 2, base: first)
        try await createManifest()
        let name = try #require(FilePath(second).lastComponent)
        let url = "https://cdn.example/st/i/\(name)?signature=a/b"
        #expect(try await add(second, version: 1, "--url", url).status == 0)
        let offered = try Manifest(json: bytes(of: FilePath(manifest)))
        let reference = try #require(offered.packs.first?.index)
        #expect(reference.url == url)
        let delta = try #require(reference.deltas.first)
        #expect(delta.url.hasPrefix("https://cdn.example/st/i/"), "\(delta)")
        #expect(!delta.url.contains("signature"), "\(delta)")
        try publisher.write(["b": [1]])
        let packed = try await world.program.run([
            "package", recipe, "--indexed", "-o", publisher.store.string, "--base", manifest,
        ])
        #expect(packed.status == 0, "\(packed)")
    }

    @Test func anIndexBehindALinkIsCheckedLikeThatOfItsStore() async throws {
        try publisher.write(["a": noise(1000)])
        let index = try await publisher.package(version: 1)
        try await createManifest()
        let link = world.directory.path.appending("link").string
        #expect(unsafe symlink(index, link) == 0)
        #expect(try await add(link, version: 1).status == 0)
        let store = try Directory.open(publisher.store)
        try store.rename("b", to: "away", in: store)
        let refused = try await add(link, version: 2)
        #expect(refused.status == 31, "\(refused)")
        #expect(refused.error.contains("No such file or directory"), "\(refused)")
    }

    @Test func optionsAreNamedAsTheReasonForNoDifferences() async throws {
        let first = try await packageThenChange()
        let command = ["package", recipe, "--indexed", "-o", publisher.store.string]
        let packed = try await world.program.run(command + ["--base", first, "--no-deltas"])
        #expect(packed.status == 0, "\(packed)")
        let reason = "no delta set and no patch, as the options say; an update transfers "
        #expect((packed.output + packed.error).contains(reason), "\(packed)")
    }

    @Test(arguments: ["gc", "verify"])
    func aStoreThatTheSystemRefusesIsNoFaultOfTheCommandLine(command: String) async throws {
        try await createManifest()
        let loop = world.directory.path.appending("loop").string
        #expect(unsafe symlink("loop", loop) == 0)
        let words = ["store", command] + (command == "gc" ? ["--manifest", manifest] : [])
        let refused = try await world.program.run(words + [loop])
        #expect(refused.status == 31, "\(refused)")
        #expect(refused.error.contains("cannot open '\(loop)'"), "\(refused)")
        let missing = try await world.program.run(words + [loop + ".none"])
        #expect(missing.status == 64, "\(missing)")
        let hint = "hint: name the directory with the folders 'i' and 'b'\n"
        #expect(missing.error.hasSuffix(hint), "\(missing)")
    }

    @Test(arguments: ["b", "i"])
    func aLinkInsteadOfAFolderIsNamedWithAdvice(folder: String) async throws {
        let index = try await packageThenChange()
        try await createManifest()
        #expect(try await add(index, version: 1).status == 0)
        let store = try Directory.open(publisher.store)
        let name = FilePath.Component(stringLiteral: folder)
        try store.rename(name, to: "away", in: store)
        try store.createLink(FilePath(folder), to: "away")
        let path = publisher.store.string
        for command in [
            ["package", recipe, "--indexed", "--no-archive", "-o", path],
            ["store", "gc", path, "--manifest", manifest], ["store", "verify", path],
        ] {
            let ending = try await world.program.run(command)
            #expect(ending.status == 31, "\(ending)")
            let message = """
                stagepack: error: cannot open '\(path)/\(folder)': Not a directory
                hint: the folder '\(folder)' of a store cannot be a link: put the folder there, or link the whole store

                """
            #expect(ending.error == message, "\(ending)")
        }
    }

    @Test func aVersionWithoutABundleIsNotOffered() async throws {
        let index = try await packageThenChange()
        try await createManifest()
        let bundles = try Directory.open(publisher.store.appending("b"))
        let entries = try bundles.entries()
        let name = try #require(entries.first).name
        try bundles.remove(name)
        let ending = try await add(index, version: 1)
        #expect(ending.status == 31, "\(ending)")
        #expect(ending.error.contains("b/\(name)': No such file or directory"), "\(ending)")
        let hint = "copy it from another copy of the store, or package the version again"
        #expect(ending.error.hasSuffix("hint: \(hint)\n"), "\(ending)")
    }

    /// A run that was killed may have renamed bundles without syncing their directory, which fails here.
    @Test(.tracing)
    func aVersionIsOfferedOnlyIfItsObjectsAreOnDisk() async throws {
        let index = try await packageThenChange()
        try await createManifest()
        let before = try bytes(of: FilePath(manifest))
        let bundles = publisher.store.appending("b").string
        let program = try failing(syncsOf: bundles, with: "EIO")
        let ending = try await add(index, version: 1, by: program)
        #expect(ending.status == 31, "\(ending)")
        #expect(ending.error.contains("cannot synchronize '\(bundles)'"), "\(ending)")
        #expect(try bytes(of: FilePath(manifest)) == before)
        #expect(try await add(index, version: 1).status == 0)
    }

    /// A read-only image has no operation for that.
    @Test(.tracing)
    func aVersionIsOfferedFromAFileSystemThatSyncsNoDirectories() async throws {
        let index = try await packageThenChange()
        try await createManifest()
        let bundles = publisher.store.appending("b").string
        let program = try failing(syncsOf: bundles, with: "EINVAL")
        let ending = try await add(index, version: 1, by: program)
        #expect(ending.status == 0, "\(ending)")
    }

    /// Returns the program whose fsync(2) of a directory fails.
    private func failing(syncsOf directory: String, with error: String) throws -> Program {
        Program(wrapper: [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-P", directory, "-e", "signal=none",
            "-e", "trace=fsync", "-e", "inject=fsync:error=\(error)", try Program.path.string,
        ])
    }

    /// A writer holds no lock there either.
    @Test(.tracing)
    func aStoreOnAFileSystemWithoutLocksIsNotCollected() async throws {
        try publisher.write(["a": noise(1000)])
        _ = try await publisher.package(version: 1)
        try publisher.write(["a": noise(1000, seed: 2)])
        let index = try await publisher.package(version: 2)
        try await createManifest()
        #expect(try await add(index, version: 2).status == 0)
        let (store, bundles) = (publisher.store, publisher.store.appending("b"))
        func count() throws -> Int { try Directory.open(bundles).entries().count }
        let before = try count()
        // strace(1) finds the calls by the path of a file that exists.
        try Directory.open(store).write([], to: ".lock", durably: false)
        let program = Program(wrapper: [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-P", "\(store)/.lock", "-e",
            "signal=none", "-e", "trace=fcntl", "-e", "inject=fcntl:error=ENOLCK",
            try Program.path.string,
        ])
        let collect = ["store", "gc", store.string, "--manifest", manifest, "--keep", "0"]
        let refused = try await program.run(collect)
        #expect(refused.status == 31 && refused.output.isEmpty, "\(refused)")
        let message = "the file system of '\(store)' has no locks"
        #expect(refused.error.contains(message), "\(refused)")
        #expect(refused.error.hasSuffix("; '--dry-run' needs no locks\n"), "\(refused)")
        #expect(try count() == before)
        let plan = try await program.run(collect + ["--dry-run"])
        #expect(plan.status == 0 && plan.output.hasPrefix("would remove "), "\(plan)")
        #expect(try count() == before)
        let collected = try await world.program.run(collect)
        #expect(collected.status == 0, "\(collected)")
        #expect(try count() < before)
    }

    @Test func marksOfOneVersionDoNotAddUp() async throws {
        try publisher.write(["a": noise(1000)])
        let index = try await publisher.package(version: 1)
        try await createManifest()
        #expect(try await add(index, version: 1).status == 0)
        try await collectGarbage()
        func marks() throws -> Int {
            try Directory.open(publisher.store).entries().count {
                $0.path.string.hasPrefix(".offered.")
            }
        }
        for version in 2...4 { _ = try await publisher.package(version: version) }
        #expect(try marks() == 1)
    }
}
