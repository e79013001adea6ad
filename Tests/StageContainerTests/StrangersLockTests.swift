import StageContainer
import StageModel
import StageSystem
import SystemPackage
import Testing

/// Locks of other processes on files that they were able to open earlier.
@Suite(.container) struct StrangersLockTests {
    private let container: Container
    private let digest = Digest(bytes: [UInt8](repeating: 7, count: Digest.byteCount))

    init() throws { container = try Container.make(ContainerTrait.path) }

    private func directory(_ name: String) throws -> Directory {
        try Directory.open(ContainerTrait.path.pushing(FilePath(name)))
    }

    private func mode(_ name: String) throws -> UInt32? {
        try container.root.status(FilePath(name))?.mode
    }

    /// Takes a shared lock on a file, as a process that may only read it can.
    private func hold(_ name: String) throws -> FileLock {
        guard let file = try container.root.file(reading: FilePath(name)),
            let lock = try FileLock.attempt(file, mode: .shared)
        else { throw ContainerError.missing(FilePath(name)) }
        return lock
    }

    /// Creates the area of a process that died, which other users can read.
    private func leaveArea() throws -> String {
        let lock = try #require(try container.attemptLock(.aurora))
        _ = try container.makeStagingArea(lock, continuing: digest)
        let area = "staging/aurora.\(digest)"
        try directory(area).setMode(.directory)
        try directory("staging").changeMode(of: FilePath("aurora.\(digest)/lease"))
        return area
    }

    @Test func anAreaIsItsOwnersAloneUntilItIsPublished() throws {
        let lock = try #require(try container.attemptLock(.aurora))
        let area = try container.makeStagingArea(lock, continuing: digest)
        #expect(try mode("staging/aurora.\(digest)") == 0o700)
        #expect(try mode("staging/aurora.\(digest)/lease") == 0o600)
        try container.publish(area, as: .aurora(version: 1))
        let generation = try #require(try container.reader.currentGeneration(of: .aurora))
        #expect(try mode("generations/aurora/\(generation)") == 0o755)
        #expect(try mode("generations/aurora/\(generation)/lease") == 0o644)
        #expect(try mode("generations/aurora/\(generation)/pack.json") == 0o644)
    }

    @Test func anAreaIsTakenOverThoughItsLeaseIsHeld() throws {
        let name = try leaveArea()
        let stranger = try hold("\(name)/lease")
        let lock = try #require(try container.attemptLock(.aurora))
        let area = try container.makeStagingArea(lock, continuing: digest)
        #expect(area.isContinued)
        #expect(try mode(name) == 0o700)
        #expect(try mode("\(name)/lease") == 0o600)
        // The call neither keeps nor removes the area because of the other user's lock.
        #expect(container.removeLeftovers(now: 0, offering: OfferedContent()) == Removal())
        try area.write("sky.svg", "<svg/>")
        try container.publish(area, as: .aurora(version: 1))
        #expect(try container.reader.lease(.aurora)?.text(of: "sky.svg") == "<svg/>")
        _ = consume stranger
    }

    @Test func anAreaThatOnlyReadersLockIsRemoved() throws {
        let name = try leaveArea()
        let stranger = try hold("\(name)/lease")
        var expected = Removal()
        expected.leftovers = 1
        #expect(container.removeLeftovers(now: 0, offering: OfferedContent()) == expected)
        #expect(try directory("staging").entries() == [])
        _ = consume stranger
    }

    @Test(arguments: ["aurora", ".staging", ".history"])
    func aLockFileThatOthersMayOpenIsTheOwnersAfterwards(name: String) throws {
        let path = FilePath("locks/\(name)")
        try container.root.file(updating: path).setMode(.file)
        let lock = try #require(try container.attemptLock(.aurora))
        _ = try container.makeStagingArea(lock)
        try container.updateHistory(of: try ApplicationID("net.example")) { $0.spent.other = .zero }
        #expect(try mode("locks/\(name)") == 0o600)
    }

    @Test func aDownloadsLockFileIsItsOwnersAlone() throws {
        let name = FilePath.Component("\(digest).lock")
        let path = FilePath("downloads").appending(try #require(name))
        try container.root.file(updating: path).setMode(.file)
        let lock = try container.attemptDownloadLock(ContainerLayout.downloadName(of: digest))
        #expect(try container.root.status(path)?.mode == 0o600)
        lock?.end()
    }

    @Test func aReaderBlocksOnlyTheRemovalOfItsGeneration() throws {
        try container.publishAurora(version: 1, "1")
        let first = try #require(try container.reader.currentGeneration(of: .aurora))
        let stranger = try hold("generations/aurora/\(first)/lease")
        // Operations: the same content again, another version, a rollback, a pin, an eviction that keeps the pack.
        try container.publishAurora(version: 1, "1")
        try container.publishAurora(version: 2, "2")
        let lock = try #require(try container.attemptLock(.aurora))
        #expect(try container.rollBack(lock, now: 1).to != first)
        #expect(try container.evict(first, isCurrent: false, holding: lock) == false)
        let removal = try container.remove(lock, includingPinned: true)
        #expect(removal.generations == 2 && removal.inUse == 1)
        #expect(try container.reader.stagedPacks() == [])
        _ = consume stranger
    }

    @Test func temporaryFilesOfAKilledRunAreNotPublished() throws {
        let lock = try #require(try container.attemptLock(.aurora))
        let area = try container.makeStagingArea(lock, continuing: digest)
        try area.directory.leave(".pack.json.1a2b3c.tmp", "half")
        try container.publish(area, as: .aurora(version: 1))
        let generation = try #require(try container.reader.currentGeneration(of: .aurora))
        let names = try directory("generations/aurora/\(generation)").entries().map(\.path.string)
        #expect(names.sorted() == ["content", "lease", "pack.json"])
    }
}

extension Directory {
    /// Makes a file readable for others, as an earlier run with another umask may have left it.
    fileprivate func changeMode(of name: FilePath) throws {
        try file(updating: name).setMode(.file)
    }
}
