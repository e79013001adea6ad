import StageEngine
import StageModel
import StageSystem
import StageTesting
import StageTransfer
import Synchronization
import SystemPackage
import Testing

/// Updates of indexed packs whose objects no server has intact.
@Suite(.directory, .server)
struct LostObjectTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    /// Faults of the bundles on the server.
    enum Fault: CaseIterable {
        case missing, refused, damaged
    }

    private struct Failure: Error { var text: String }

    /// Stages a version, and publishes the next one with an archive that is larger than the missing objects.
    private func publishUpdate() async throws -> [String: [UInt8]] {
        var tree = ["run.sh": [1, 2] as [UInt8]]
        // Of files that are the same but for a byte every few kilobytes, an archive is much smaller than frames.
        for number in 0..<5 as Range<UInt8> {
            var bytes = noise(200_000)
            for offset in stride(from: 0, to: bytes.count, by: 4096) { bytes[offset] = number }
            tree["large/\(number)"] = bytes
        }
        try await world.publish(tree)
        guard case .staged = try await world.stage() else { throw Failure(text: "first version") }
        tree["new"] = noise(1000, seed: 9)
        try await world.publish(tree, deltas: false, archive: true)
        #expect(world.pack?.archive != nil)
        return tree
    }

    private func serve(_ fault: Fault) throws {
        for path in world.bundles {
            let answer: Answer =
                switch fault {
                case .missing: .status(404)
                case .refused: .status(403)
                case .damaged: try .content(world.object(path).map { $0 ^ 1 })
                }
            world.server.answer(path, with: answer)
        }
    }

    @Test(arguments: Fault.allCases)
    func theArchiveReplacesThemInTheSameRun(fault: Fault) async throws {
        let tree = try await publishUpdate()
        try serve(fault)
        let choices = Mutex<[TransferChoice]>([])
        let outcome = try await world.stage { event in
            if case .chose(let choice) = event { choices.withLock { $0.append(choice) } }
        }
        guard case .staged(let figures) = outcome else { throw Failure(text: "\(outcome)") }
        #expect(try world.staged() == tree)
        let chosen = choices.withLock { $0 }
        #expect(chosen.map(\.way) == [.objects, .archive])
        #expect(chosen.map(\.lacksObjects) == [false, true])
        #expect(world.archiveRequests == 1)
        // Bytes that were wrong were transferred all the same.
        let (archive, index) = (world.pack?.archive, world.pack?.index)
        let sizes = [archive?.size, index?.deltas.first?.size ?? index?.size]
        let needed = sizes.compactMap(\.self).reduce(.zero, +)
        #expect(fault == .damaged ? figures.transferred > needed : figures.transferred == needed)
        let left = try Directory.open(world.root.path.appending("container/downloads")).entries()
        #expect(left.filter { !$0.path.string.hasSuffix(".lock") } == [])
    }

    /// The frames of the damaged file are in no other place than in the archive.
    @Test func theArchiveReplacesADamagedFile() async throws {
        let tree = try await publishUpdate()
        guard case .staged = try await world.stage() else { throw Failure(text: "not staged") }
        try overwrite(world.path(of: "large/3"), [0, 0, 0], at: 5000)
        try serve(.missing)
        guard case .staged = try await world.stage(repairing: true) else {
            throw Failure(text: "not repaired")
        }
        #expect(try world.staged() == tree)
        #expect(world.archiveRequests == 1)
    }

    /// A server that cannot send objects for the moment is asked again by the next run, and allowances are kept.
    @Test(arguments: [(503, true), (404, false)])
    func theyAreNotReplaced(status: Int, mayReplaceObjects: Bool) async throws {
        let tree = try await publishUpdate()
        for path in world.bundles { world.server.answer(path, with: .status(status)) }
        world.mayReplaceObjects = mayReplaceObjects
        guard case .failed(.transfer(.refused(_, status, _))) = try await world.stage() else {
            throw Failure(text: "staged without objects")
        }
        #expect(world.archiveRequests == 0)
        try world.serve()
        guard case .staged = try await world.stage() else { throw Failure(text: "not staged") }
        #expect(try world.staged() == tree)
        #expect(world.archiveRequests == 0)
    }

    /// Without the archive, too, the run ends with the error of the objects, which it requests once.
    @Test func withoutTheArchiveTheRunFailsForTheObjects() async throws {
        let tree = try await publishUpdate()
        let before = world.bundles.map { world.server.requests(for: $0).count }
        try serve(.missing)
        for path in world.archives { world.server.answer(path, with: .status(404)) }
        guard case .failed(.transfer(.refused(let url, 404, _))) = try await world.stage() else {
            throw Failure(text: "staged without content")
        }
        #expect(url.contains("/b/"))
        for (path, count) in zip(world.bundles, before) {
            let starts = world.server.requests(for: path).dropFirst(count).map(\.rangeStart)
            #expect(Set(starts).count == starts.count)
        }
        try world.serve()
        guard case .staged = try await world.stage() else { throw Failure(text: "not staged") }
        #expect(try world.staged() == tree)
    }
}
