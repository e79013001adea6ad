import Foundation
import StageContainer
import StageModel
import StageSystem
import SystemPackage
import Testing

/// Evictions check the state of a generation again before they delete it.
@Suite(.container) struct EvictionTests {
    let container: Container

    init() throws {
        container = try Container.make(ContainerTrait.path)
        for version in 1...2 { try container.publishAurora(version: version, "\(version)") }
    }

    private func stored(_ role: StoredGeneration.Role) throws -> StoredGeneration {
        try #require(try container.reader.inventory().first { $0.role == role })
    }

    private func evict(_ stored: StoredGeneration) throws -> Bool {
        let lock = try container.waitForLock(.aurora)
        return try container.evict(stored.name, isCurrent: stored.role == .current, holding: lock)
    }

    @Test func theInventoryTellsWhatEachGenerationIs() throws {
        let lease = try #require(try container.reader.lease(.aurora))
        let before = Int64(Date().timeIntervalSince1970) - 60
        let current = try stored(.current)
        #expect(current.name == lease.generation)
        #expect(current.isLeased)
        #expect(current.lastUsed > before)
        #expect(current.size == .kibibytes(8))
        let previous = try stored(.previous)
        #expect(previous.name.content?.version == 1)
        #expect(!previous.isLeased)
        // The last use is the time of the staging, since no process has loaded the pack.
        #expect(previous.lastUsed == 1)
        // The query has taken no lock, so a reader can take one.
        #expect(try container.reader.lease(.aurora)?.generation == current.name)
    }

    /// The record tells the directories, of which there are more than files.
    @Test func directoriesCountInTheSizeOfAGeneration() throws {
        let lock = try container.waitForLock(.aurora)
        let area = try container.makeStagingArea(lock)
        try area.write("sky.svg", "3")
        var record = StagedPack.aurora(version: 3)
        record.directoryCount = 10
        try container.publish(area, as: record)
        #expect(try stored(.current).size == .kibibytes(4 * 11))
    }

    @Test func aCurrentGenerationGoesWithItsLink() throws {
        #expect(try evict(try stored(.current)))
        #expect(try container.reader.lease(.aurora) == nil)
        #expect(try container.reader.stagedPacks() == [])
        #expect(try evict(try stored(.obsolete)))
        #expect(try container.reader.packsWithGenerations() == [])
        #expect(try container.root.directory("staging")?.entries().isEmpty == true)
    }

    @Test func aPreviousGenerationGoesWithoutTheLinkOfTheCurrentOne() throws {
        let current = try stored(.current)
        #expect(try evict(try stored(.previous)))
        #expect(try container.reader.generations(of: .aurora) == [current.name])
        #expect(try container.reader.lease(.aurora)?.text(of: "sky.svg") == "2")
    }

    @Test func aGenerationWithALeaseIsNotEvicted() throws {
        let current = try stored(.current)
        let lease = try #require(try container.reader.lease(.aurora))
        #expect(try !evict(current))
        #expect(try lease.text(of: "sky.svg") == "2")
        #expect(try container.reader.lease(.aurora)?.generation == current.name)
        #expect(try container.reader.stagedPacks() == [.aurora])
    }

    @Test func aPinnedGenerationIsNotEvicted() throws {
        let current = try stored(.current)
        _ = try container.pin(try container.waitForLock(.aurora), now: 1)
        #expect(try !evict(current))
        #expect(try stored(.current).isPinned)
    }

    @Test func generationsThatARollbackExchangedAreNotEvicted() throws {
        let (current, previous) = (try stored(.current), try stored(.previous))
        _ = try container.rollBack(try container.waitForLock(.aurora), now: 1)
        _ = try container.release(try container.waitForLock(.aurora))
        #expect(try !evict(previous))
        #expect(try !evict(current))
        #expect(try container.reader.lease(.aurora)?.text(of: "sky.svg") == "1")
        #expect(try container.reader.generations(of: .aurora).count == 2)
    }

    @Test func aLeasedGenerationStaysReadableDuringEvictions() async throws {
        let container = container
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                for version in 3...30 {
                    let lock = try container.waitForLock(.aurora)
                    if let current = try container.reader.currentGeneration(of: .aurora) {
                        _ = try container.evict(current, isCurrent: true, holding: lock)
                    }
                    let area = try container.makeStagingArea(lock)
                    try area.content.leave("sky.svg", "\(version)")
                    try container.publish(area, as: .aurora(version: version))
                }
            }
            for _ in 0..<2 {
                group.addTask {
                    var last = 0
                    while last < 30 {
                        // No version is staged between an eviction and the next publication.
                        if let lease = try container.reader.lease(.aurora) {
                            let version = try #require(Int(try lease.text(of: "sky.svg")))
                            #expect(version == lease.generation.content?.version)
                            last = version
                        }
                        await Task.yield()
                    }
                }
            }
            try await group.waitForAll()
        }
    }
}
