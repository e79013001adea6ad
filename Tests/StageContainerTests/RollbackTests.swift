import Foundation
import StageContainer
import StageModel
import StageSystem
import SystemPackage
import Testing

@Suite(.container) struct RollbackTests {
    let container: Container

    init() throws {
        container = try Container.make(ContainerTrait.path)
    }

    private func text() throws -> String? {
        try container.reader.lease(.aurora)?.text(of: "sky.svg")
    }

    private func rollBack() throws -> Rollback {
        try container.rollBack(try container.waitForLock(.aurora), now: 7)
    }

    private func versions() throws -> [Int] {
        try container.reader.generations(of: .aurora).compactMap(\.content?.version)
    }

    @Test func aRollbackBringsBackTheGenerationBeforeAndPinsIt() throws {
        try container.publishAurora(version: 1, "old")
        try container.publishAurora(version: 2, "new")
        let lease = try #require(try container.reader.lease(.aurora))

        let rollback = try rollBack()

        #expect(rollback.from.content?.version == 2)
        #expect(rollback.to.content?.version == 1)
        #expect(try text() == "old")
        #expect(try lease.text(of: "sky.svg") == "new")
        let pin = try #require(try container.reader.pin(of: .aurora))
        #expect(pin == rollback.pin)
        #expect(pin.version == 1)
        #expect(pin.pinnedAt == 7)
        #expect(pin.replaced == rollback.from)
        #expect(try container.reader.pins() == [.aurora: pin])
    }

    @Test func aSecondRollbackTakesTheFirstOneBack() throws {
        try container.publishAurora(version: 1, "old")
        try container.publishAurora(version: 2, "new")
        let first = try rollBack()
        let second = try rollBack()
        #expect([second.from, second.to] == [first.to, first.from])
        #expect(second.pin == nil)
        #expect(try text() == "new")
        #expect(try container.reader.pins() == [:])
        #expect(try rollBack() == first)
    }

    @Test func thereHasToBeAPreviousGenerationOfOtherContent() throws {
        #expect(throws: ContainerError.notStaged(.aurora)) { try rollBack() }
        try container.publishAurora(version: 1, "damaged")
        try container.publishAurora(version: 1, "repaired")
        #expect(throws: ContainerError.noPrevious(.aurora)) { try rollBack() }
        #expect(try text() == "repaired")
        try container.publishAurora(version: 2, "new")
        _ = try rollBack()
        #expect(try text() == "repaired")
    }

    @Test func theGenerationThatWasLeftForGoodIsNotThePreviousOne() throws {
        try container.publishAurora(version: 1, "good")
        try container.publishAurora(version: 2, "bad")
        _ = try rollBack()
        _ = try container.release(try container.waitForLock(.aurora))
        try container.publishAurora(version: 3, "better")
        let lock = try container.waitForLock(.aurora)
        _ = try container.removeObsoleteGenerations(lock, keeping: 1)
        #expect(try versions() == [1, 3])
        #expect(try container.rollBack(lock, now: 9).to.content?.version == 1)
    }

    @Test(arguments: [[1, 2], [2, 1]])
    func ofTwoGenerationsOfOneSecondTheLaterOneIsNotThePreviousOne(order: [Int]) throws {
        for version in order {
            let area = try container.makeStagingArea(try container.waitForLock(.aurora))
            try area.write("sky.svg", "\(version)")
            var record = StagedPack.aurora(version: version)
            record.stagedAt = 5
            try container.publish(area, as: record)
        }
        _ = try rollBack()
        _ = try container.release(try container.waitForLock(.aurora))
        #expect(throws: ContainerError.noPrevious(.aurora)) { try rollBack() }
    }

    @Test func aRepairedCopyIsRolledBackToWhatTheDamagedOneReplaced() throws {
        for version in 1...2 { try container.publishAurora(version: version, "\(version)") }
        try container.publishAurora(version: 2, "repaired")
        let lock = try container.waitForLock(.aurora)
        _ = try container.removeObsoleteGenerations(lock, keeping: 1)
        #expect(try versions() == [1, 2])
        #expect(try container.rollBack(lock, now: 9).to.content?.version == 1)
    }

    @Test func theDamagedCopyOfARepairedPackIsNotKept() throws {
        try container.publishAurora(version: 1, "damaged")
        try container.publishAurora(version: 1, "repaired")
        let lock = try container.waitForLock(.aurora)
        #expect(try container.removeObsoleteGenerations(lock, keeping: 1).generations == 1)
        #expect(try container.reader.generations(of: .aurora).count == 1)
        #expect(try text() == "repaired")
    }

    /// A generation that is restored without a download must have all files of a staged one.
    @Test(arguments: ["pack.json", "lease", "files", "content"])
    func aKeptGenerationThatLacksAnEntryIsNotRestored(_ name: FilePath.Component) throws {
        for version in 1...2 {
            let area = try container.makeStagingArea(try container.waitForLock(.aurora))
            try area.directory.leave("files", "")
            try container.publish(area, as: .aurora(version: version))
        }
        func kept() throws -> [KeptGeneration] {
            try container.reader.keptGenerations(holding: .aurora(version: 1))
        }
        let generation = try #require(try kept().first?.name)
        let directory = try #require(try container.reader.directory(of: generation, .aurora))
        try directory.removeTree(name)
        #expect(try kept() == [])
    }

    /// If a publication is killed after it has moved a generation, only the owner can read the generation.
    @Test func readersReachTheGenerationAfterARollback() throws {
        for version in 1...2 { try container.publishAurora(version: version, "\(version)") }
        let generation = try #require(try container.reader.previousGeneration(of: .aurora))
        let directory = try #require(try container.reader.directory(of: generation, .aurora))
        try directory.setMode(.privateDirectory)
        _ = try rollBack()
        #expect(try directory.status().mode == 0o755)
    }

    /// If a process crashes before it switches the link, the generation was never visible to readers.
    @Test func aGenerationThatWasNotPublishedIsNoTarget() throws {
        try container.publishAurora(version: 1, "old")
        let packs = try #require(try container.root.directory("packs"))
        let target = try #require(try packs.link("aurora"))
        try container.publishAurora(version: 2, "new")
        try packs.replaceLink("aurora", to: target)
        #expect(throws: ContainerError.noPrevious(.aurora)) { try rollBack() }
        let lock = try container.waitForLock(.aurora)
        _ = try container.removeObsoleteGenerations(lock, keeping: 1)
        #expect(try versions() == [1])
    }

    @Test func aPinHoldsOnlyWhatIsStaged() throws {
        try container.publishAurora(version: 1, "old")
        let lock = try container.waitForLock(.aurora)
        let wrong = ContainerError.otherVersion(.aurora, expected: 2, staged: 1)
        #expect(throws: wrong) { try container.pin(lock, version: 2, now: 5) }
        #expect(try container.reader.pin(of: .aurora) == nil)
        let pin = try container.pin(lock, version: 1, now: 5)
        #expect(try container.pin(lock, now: 6) == pin)
        #expect(try container.reader.pin(of: .aurora) == pin)
        #expect(pin.replaced == nil)

        // The state after a crash between the pin of a rollback and its switch.
        let area = try container.makeStagingArea(lock)
        try area.content.leave("sky.svg", "new")
        try container.publish(area, as: .aurora(version: 2))
        #expect(try container.reader.pins() == [:])
        _ = try container.removeObsoleteGenerations(lock, keeping: 1)
        #expect(try container.root.directory("pins")?.entries().isEmpty == true)
        #expect(try container.release(lock) == nil)
    }

    @Test func aRollbackReplacesAPinByAPerson() throws {
        for version in 1...2 { try container.publishAurora(version: version, "\(version)") }
        let lock = try container.waitForLock(.aurora)
        _ = try container.pin(lock, now: 5)
        let pin = try #require(try container.rollBack(lock, now: 6).pin)
        #expect(pin.version == 1)
        #expect(try container.release(lock) == pin)
        #expect(try container.reader.pins() == [:])
    }

    @Test func aRollbackThatIsUndoneOrCutShortRestoresThePinBefore() throws {
        for version in 1...2 { try container.publishAurora(version: version, "\(version)") }
        let lock = try container.waitForLock(.aurora)
        let requested = try container.pin(lock, now: 5)
        let rollback = try container.rollBack(lock, now: 6)
        #expect(rollback.pin?.replaced == rollback.from)

        // The state after a crash before the switch of the link.
        let packs = try #require(try container.root.directory("packs"))
        let target = try #require(try packs.link("aurora"))
        try packs.replaceLink("aurora", to: "../generations/aurora/\(rollback.from)/content")
        #expect(try container.reader.pins() == [.aurora: requested])
        _ = try container.removeObsoleteGenerations(lock, keeping: 1)
        #expect(try container.reader.pins() == [.aurora: requested])

        try packs.replaceLink("aurora", to: target)
        #expect(try container.reader.pin(of: .aurora) == rollback.pin)
        #expect(try container.rollBack(lock, now: 7).pin == requested)
        #expect(try text() == "2")
        #expect(try container.release(lock) == requested)
    }

    @Test func aPinnedPackIsRemovedOnlyOnPurpose() throws {
        try container.publishAurora(version: 1, "1")
        let lock = try container.waitForLock(.aurora)
        let pin = try container.pin(lock, now: 5)
        #expect(throws: ContainerError.pinned(.aurora, version: 1)) { try container.remove(lock) }
        #expect(try text() == "1")
        #expect(try container.reader.pin(of: .aurora) == pin)
        _ = try container.remove(lock, includingPinned: true)
        #expect(throws: ContainerError.notStaged(.aurora)) { try container.pin(lock, now: 5) }
        #expect(try container.root.directory("pins")?.entries().isEmpty == true)
    }

    @Test func readersMeetWholeGenerationsWhileOneIsSwitchedBackAndForth() async throws {
        for version in 1...2 { try container.publishAurora(version: version, "\(version)") }
        let container = container
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                for _ in 0..<200 {
                    _ = try container.rollBack(try container.waitForLock(.aurora), now: 1)
                }
            }
            for _ in 0..<2 {
                group.addTask {
                    for _ in 0..<400 {
                        let lease = try #require(try container.reader.lease(.aurora))
                        let version = try lease.text(of: "sky.svg")
                        #expect(lease.generation.content?.version.description == version)
                        await Task.yield()
                    }
                }
            }
            try await group.waitForAll()
        }
    }
}
