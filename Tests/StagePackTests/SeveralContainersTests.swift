import FoundationEssentials
import StageContainer
import StageModel
import StagePack
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The choice of a store between the copies of several containers.
@Suite(.directory) struct SeveralContainersTests {
    let user: SampleContainer
    let system: SampleContainer
    let store: PackStore

    init() throws {
        user = try SampleContainer("user")
        system = try SampleContainer("system")
        store = PackStore(containers: [user.path, system.path])
    }

    private func sky() throws -> String? { try text("sky", in: store.localURL(for: "aurora")) }

    @Test func theNewestVersionWinsWhereverItIs() throws {
        try system.publish(.aurora, version: 5, ["sky": "system 5"])
        #expect(try sky() == "system 5")
        try user.publish(.aurora, version: 1, ["sky": "user 1"])
        #expect(try sky() == "system 5")
        #expect(try store.record(of: .aurora)?.version == 5)
        #expect(try store.currentGeneration(of: .aurora)?.content?.version == 5)
        #expect(try store.container(of: .aurora) == system.path)
        try user.publish(.aurora, version: 6, ["sky": "user 6"])
        #expect(try sky() == "user 6")
        #expect(try store.container(of: .aurora) == user.path)
        try user.publish(.levels, version: 1, [:])
        #expect(try store.stagedPacks() == [.aurora, .levels])
    }

    /// A store that has handed out the user's copy may switch to another one later.
    @Test func aNewerVersionOfTheSystemReplacesAUsersCopyThatWasLoadedFirst() throws {
        try user.publish(.aurora, version: 1, ["sky": "user 1"])
        #expect(try sky() == "user 1")
        try system.publish(.aurora, version: 2, ["sky": "system 2"])
        #expect(try sky() == "system 2")
    }

    @Test func ofOneVersionTheUsersCopyWins() throws {
        try system.publish(.aurora, version: 3, ["sky": "system 3"])
        try user.publish(.aurora, version: 3, ["sky": "user 3"])
        #expect(try sky() == "user 3")
    }

    @Test func aPinSaysWhichVersionIsAcceptable() throws {
        try user.publish(.aurora, version: 4, ["sky": "user 4"])
        try system.publish(.aurora, version: 2, ["sky": "system 2"])
        try system.change(.aurora) { try $0.pin($1, now: 1) }
        #expect(try sky() == "system 2")
        try user.change(.aurora) { try $0.pin($1, now: 1) }
        #expect(try sky() == "user 4")
        try user.change(.aurora) { try $0.release($1) }
        try system.change(.aurora) { try $0.release($1) }
        #expect(try sky() == "user 4")
    }

    /// A rollback prevents a container's readers from using a version, even from another container.
    @Test func aRollbackHoldsAgainstANewerCopyElsewhere() throws {
        try user.publish(.aurora, version: 1, ["sky": "user 1"])
        try user.publish(.aurora, version: 2, ["sky": "user 2"])
        try system.publish(.aurora, version: 3, ["sky": "system 3"])
        try user.change(.aurora) { try $0.rollBack($1, now: 1) }
        #expect(try sky() == "user 1")
        try user.change(.aurora) { try $0.rollBack($1, now: 2) }
        #expect(try sky() == "system 3")
    }

    @Test func aCopyWhoseFilesAreGoneIsPassedOver() throws {
        try user.publish(.aurora, version: 4, ["sky": "user 4"])
        try system.publish(.aurora, version: 2, ["sky": "system 2"])
        try Directory.open(user.path).directory("generations")?.removeTree("aurora")
        #expect(try sky() == "system 2")
        #expect(try store.currentGeneration(of: .aurora)?.content?.version == 2)
        #expect(try store.record(of: .aurora)?.version == 2)
    }

    @Test func aPackThatIsBeingStagedInOneContainerStaysInAll() async throws {
        try user.publish(.aurora, version: 1, ["sky": "user 1"])
        try system.publish(.aurora, version: 2, ["sky": "system 2"])
        let url = try #require(try store.localURL(for: "aurora"))
        do {
            let lock = try #require(try Container.make(system.path).attemptLock(.aurora))
            await #expect(throws: PackStoreError.container(.busy(.aurora))) {
                try await store.remove(.aurora)
            }
            withExtendedLifetime(lock) {}
        }
        for container in [user, system] {
            let own = PackStore(containers: [container.path])
            #expect(try own.stagedPacks() == [.aurora])
        }
        // The store keeps its leases.
        try system.publish(.aurora, version: 3, ["sky": "system 3"])
        #expect(try system.removeObsoleteGenerations(of: .aurora) == 0)
        #expect(try text("sky", in: url) == "system 2")
    }

    @Test func aPackThatIsPinnedInOneContainerStaysInAll() async throws {
        try user.publish(.aurora, version: 1, ["sky": "user 1"])
        try system.publish(.aurora, version: 2, ["sky": "system 2"])
        try system.change(.aurora) { try $0.pin($1, now: 1) }
        await #expect(throws: PackStoreError.container(.pinned(.aurora, version: 2))) {
            try await store.remove(.aurora)
        }
        for container in [user, system] {
            let own = PackStore(containers: [container.path])
            #expect(try own.stagedPacks() == [.aurora])
        }
        #expect(try store.pin(of: .aurora)?.version == 2)
        try system.change(.aurora) { try $0.release($1) }
        #expect(try store.pin(of: .aurora) == nil)
        #expect(try await store.remove(.aurora))
        #expect(try store.stagedPacks() == [])
    }

    @Test func theLocationDistinguishesContainersOfTheUserAndTheSystem() throws {
        let environment = ["XDG_DATA_HOME": "/home/one/data"]
        func location(_ path: FilePath) -> ContainerLocation? {
            ContainerLocations.location(of: path, environment: environment)
        }
        #expect(location("/home/one/data/stagepack/groups/net.example/packs") == .user)
        #expect(location("/var/lib/stagepack/groups/net.example") == .system)
        #expect(location("/var/lib/stagepack/groups.old/net.example") == nil)
        #expect(location("/home/one/data/other") == nil)
        #expect(try store.location(of: .aurora) == nil)
    }
}

/// The precedence rule alone, at its boundaries.
struct CopyPrecedenceTests {
    /// A copy and those that it precedes, each with container, version and whether it is pinned.
    private static let order: [(Int, Int?, Bool)] = [
        (0, 1, true), (1, 9, true), (1, 9, false), (0, 8, false), (1, 8, false),
        (0, nil, false), (1, nil, false),
    ]

    @Test func copiesAreOrderedByPinThenVersionThenContainer() {
        let copies = Self.order.map { container, version, isPinned in
            CopyPrecedence(container: container, version: version, isPinned: isPinned)
        }
        #expect(copies.reversed().sorted(by: >) == copies)
        for (index, copy) in copies.enumerated() {
            for other in copies.dropFirst(index + 1) { #expect(!(copy < other)) }
        }
    }
}
