import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Other processes that lock or keep open the files of a publisher.
@Suite(.server, .directory)
struct PublisherLockTests {
    private let world: World

    init() throws { world = try World() }

    private func run(_ arguments: String...) async throws -> Program.Ending {
        try await world.program.run(arguments)
    }

    /// Makes a manifest in a folder, and an archive for it, and returns the command that adds it.
    private func makeManifest(
        in folder: Directory
    ) async throws -> (manifest: FilePath, add: [String]) {
        let directory = world.directory.path
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": [1]])
        let recipe = directory.appending("recipe.json").string
        let archive = directory.appending("levels.tar.zst").string
        let packed = try await run("package", recipe, "-o", archive)
        try #require(packed.status == 0, "\(packed)")
        let created = try await run("manifest", "create", "--application", "net.example")
        try folder.write(Array(created.output.utf8), to: "own.json", durably: false)
        let manifest = folder.path.appending("own.json")
        let add = ["manifest", "add", manifest.string, archive, "--recipe", recipe]
        return (manifest, add + ["--pack-version", "1"])
    }

    /// Opens a file or directory as a process with read access can, and takes all kinds of locks on it.
    private func hold(_ path: FilePath) throws -> FileDescriptor {
        let file = try FileDescriptor.open(path, .readOnly)
        #expect(flock(file.rawValue, LOCK_EX | LOCK_NB) == 0)
        // A directory has no such lock.
        var lock = Glibc.flock()
        lock.l_type = Int16(F_RDLCK)
        _ = unsafe fcntl(file.rawValue, F_SETLK, &lock)
        return file
    }

    /// All users may read a manifest and a store, so their locks must not delay publishers.
    @Test(.alone) func locksOfReadersDoNotDelayPublishers() async throws {
        let folder = try Directory.make(world.directory.path.appending("published"))
        let (manifest, add) = try await makeManifest(in: folder)
        let store = try Directory.make(world.directory.path.appending("store/b"))
        let files = try [manifest, folder.path, store.path].map(hold)
        defer { for file in files { try? file.close() } }
        let began = ContinuousClock.now
        let added = try await world.program.run(add)
        #expect(added.status == 0, "\(added)")
        _ = try await IndexedPublisher(world).package(version: 1)
        #expect(ContinuousClock.now - began < .seconds(25))
        let left = try Directory.open(store.path.removingLastComponent()).entries()
        #expect(left.allSatisfy { !$0.path.string.hasPrefix(".") })
        #expect(try folder.entries().allSatisfy { !$0.path.string.hasSuffix(".lock") })
    }

    @Test(.waiting) func aManifestThatAnotherProcessChangesIsNamed() async throws {
        let (manifest, add) = try await makeManifest(in: world.directory)
        let lock = try LockFile.attempt(".own.json.lock", in: world.directory, mode: .exclusive)
        let ending = try await world.program.run(add)
        #expect(ending.status == 42)
        #expect(
            world.masked(ending.error) == """
                stagepack: error: DIRECTORY/own.json: another process is changing it
                hint: run it again when that process has ended; to see it, run 'fuser -v \
                DIRECTORY/.own.json.lock'

                """
        )
        _ = consume lock
        #expect(try await world.program.run(add).status == 0)
        #expect(try bytes(of: manifest).count > 0)
    }

    @Test(.waiting) func theLockOfAStoreThatAnotherProcessHoldsIsNamed() async throws {
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": [1]])
        let store = world.directory.path.appending("a store")
        let folder = try Directory.make(store)
        let lock = try LockFile.attempt(".lock", in: folder, mode: .exclusive)
        let recipe = world.directory.path.appending("recipe.json").string
        let ending = try await run("package", recipe, "--indexed", "-o", store.string)
        #expect(ending.status == 42)
        #expect(
            world.masked(ending.error) == """
                stagepack: error: another process holds the lock 'DIRECTORY/a store/.lock'
                hint: run it again when that process has ended; to see it, run "fuser -v \
                'DIRECTORY/a store/.lock'"

                """
        )
        _ = consume lock
    }
}
