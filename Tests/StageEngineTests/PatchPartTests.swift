import Glibc
import StageContainer
import StageDigest
import StageEngine
import StageFrame
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Updates by a patch of several parts.
@Suite(.directory, .server)
struct PatchPartTests {
    private let world: IndexedWorld
    private let old = Self.trees.old
    private let new = Self.trees.new

    init() throws { world = try IndexedWorld() }

    /// Two trees; the second has a changed large file, groups of near copies, and changed small files.
    private static let trees = {
        let (old, unfinished) = changedTrees(largeSize: 3_000_000)
        var new = unfinished
        for group in 0..<3 {
            for (name, content) in nearCopies(
                of: noise(250_000, seed: UInt64(40 + group)),
                count: 4
            ) {
                new["group \(group)/\(name)"] = content
            }
        }
        return (old: old, new: new)
    }()

    private struct Failure: Error {}

    /// Publishes and stages the old tree, and publishes the new one; returns the patch's path, table and frames.
    private func publishBoth() async throws -> Published {
        try await world.publish(old)
        guard case .staged = try await world.stage() else { throw Failure() }
        try await world.publish(new, patches: true, partSize: .mebibytes(1))
        let path = try #require(world.patches.first)
        let bytes = try world.object(path)
        let (table, frames) = try PatchTable.read(from: bytes)
        return Published(
            path: path,
            table: table,
            frames: frames.map { Array(bytes[Int($0.lowerBound)..<Int($0.upperBound)]) }
        )
    }

    private struct Published {
        var path: String
        var table: PatchTable
        var frames: [[UInt8]]

        /// Sets the lengths in the table to those of the frames, and returns the patch.
        func bytes() -> [UInt8] { table.encoded() + frames.flatMap(\.self) }
    }

    /// Stages the new tree; returns the bytes of bundles that it took.
    @discardableResult
    private func update() async throws -> Int {
        let before = world.bundleBytes
        guard case .staged = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == new)
        let container = try #require(try Container.open(world.root.path.appending("container")))
        #expect(try container.differences(in: try PackID("levels")) == [])
        #expect(try container.reader.downloadedSizes().isEmpty)
        return world.bundleBytes - before
    }

    @Test func anUpdateTakesAllParts() async throws {
        let published = try await publishBoth()
        let patch = try #require(world.pack?.index?.deltas.first?.patch)
        #expect(published.table.parts.count >= 6)
        #expect(published.table.windowSize == patch.windowSize)
        #expect(published.table.prefixSize == patch.prefixSize)
        #expect(patch.windowSize <= .mebibytes(1) && patch.prefixSize <= .mebibytes(1))
        // The patch has one near copy of each group, and the changes of the others, whose old content is found.
        #expect(patch.size < ByteCount(1_000_000))
        #expect(try await update() == 0)
        #expect(world.server.counts(for: published.path).requests == 1)
    }

    /// Wrong fields of a table, which clients detect.
    enum Bend: CaseIterable {
        case longerPart, shorterPart, emptyPart, lostPart, oneMorePart, hugePart
        case prefixBehindOldVersion, hugePrefix, longerFrame, shorterFrame, emptyFrame
        case trailingByte, lostByte
    }

    @Test(arguments: Bend.allCases)
    func anUpdateSucceedsDespiteAWrongTable(bend: Bend) async throws {
        var patch = try await publishBoth()
        switch bend {
        case .longerPart: patch.table.parts[1].contentLength += 1
        case .shorterPart: patch.table.parts[1].contentLength -= 1
        case .emptyPart: patch.table.parts[1].contentLength = 0
        case .lostPart:
            patch.table.parts.removeLast()
            patch.frames.removeLast()
        case .oneMorePart:
            patch.table.parts.append(patch.table.parts[0])
            patch.frames.append(patch.frames[0])
        case .hugePart: patch.table.parts[1].contentLength = 128 << 20 + 1
        case .prefixBehindOldVersion:
            let length = Int64(patch.table.parts[1].prefixLength)
            patch.table.parts[1].prefix = [1 << 30..<1 << 30 + length]
        case .hugePrefix: patch.table.parts[1].prefix = [0..<1 << 30]
        case .longerFrame: patch.table.parts[1].frameLength += 1
        case .shorterFrame: patch.table.parts[1].frameLength -= 1
        case .emptyFrame: patch.table.parts[1].frameLength = 0
        case .trailingByte: patch.frames.append([0])
        case .lostByte: patch.frames[patch.frames.count - 1].removeLast()
        }
        try world.offerPatch(patch.bytes())
        #expect(try await update() > 3_000_000)
    }

    /// A frame that does not decompress, one that ends early, and one after another prefix.
    @Test(arguments: [0, 1, 2], [0, 3, 5])
    func aBentPartCostsItsPiecesOnly(fault: Int, position: Int) async throws {
        var patch = try await publishBoth()
        switch fault {
        case 0: patch.frames[position] = [UInt8](repeating: 7, count: 100)
        case 1: patch.frames[position].removeLast(patch.frames[position].count / 2)
        default:
            // The content of the prefix does not match the frame.
            patch.table.parts[position].prefix = [2_000_000..<2_900_000]
            patch.frames[position].swapAt(20, 21)
        }
        patch.table.parts[position].frameLength = patch.frames[position].count
        try world.offerPatch(patch.bytes())
        let bytes = try await update()
        #expect(bytes < 1_300_000 && (bytes > 0 || fault == 2))
    }

    /// The content from the other parts is kept, even if no other object can be reached.
    @Test func anUpdateThatBreaksBetweenPartsKeepsWhatItHas() async throws {
        let whole = try await publishBoth()
        var patch = whole
        patch.frames[4] = [UInt8](repeating: 7, count: patch.frames[4].count)
        try world.offerPatch(patch.bytes())
        let broken = [Answer](repeating: .dropped, count: 80)
        for bundle in world.bundles { world.server.answer(bundle, with: broken) }
        guard case .failed = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == old)
        try world.serve()
        world.server.answer(whole.path, with: .status(404))
        // Without the patch, only the pieces of the broken part come from bundles.
        let bytes = try await update()
        #expect(bytes > 0 && bytes < 1_300_000)
    }

    /// Corruptions of a part with similar runs.
    enum ProgramBend: CaseIterable {
        case none, moreRuns, fewerRuns, noRuns, runBehindContent, runBehindPrefix, otherRun
    }

    /// A patch of a program restores it; a patch whose runs do not match its frame is ignored.
    @Test(arguments: ProgramBend.allCases)
    func aProgramIsRestoredFromDifferences(bend: ProgramBend) async throws {
        let versions = [1, 2].map { ["program": program(400_000, version: $0)] }
        try await world.publish(versions[0])
        guard case .staged = try await world.stage() else { throw Failure() }
        try await world.publish(versions[1], patches: true)
        let path = try #require(world.patches.first)
        let bytes = try world.object(path)
        var (table, frames) = try PatchTable.read(from: bytes)
        #expect(table.parts.count == 1 && table.parts[0].runsLength > 0)
        var frame = Array(bytes[Int(frames[0].lowerBound)...])
        switch bend {
        case .none: break
        case .moreRuns: table.parts[0].runsLength += 1
        case .fewerRuns: table.parts[0].runsLength -= 1
        case .noRuns: table.parts[0].runsLength = 0
        case .runBehindContent, .runBehindPrefix, .otherRun:
            let run =
                switch bend {
                case .runBehindContent: SimilarRun(content: 9..<1 << 30, prefixOffset: 0)
                case .runBehindPrefix: SimilarRun(content: 9..<30, prefixOffset: 1 << 30)
                default: SimilarRun(content: 9..<90_000, prefixOffset: 3)
                }
            let runs = [run].encoded()
            var compressor = FrameCompressor(level: 3)
            let zeros = [UInt8](repeating: 0, count: table.parts[0].contentLength)
            frame = compressor.compress((runs + zeros).span)
            table.parts[0].runsLength = runs.count
            table.parts[0].frameLength = frame.count
        }
        if bend != .none {
            try world.offerPatch(table.encoded() + frame, windowSize: table.windowSize)
        }
        let before = world.bundleBytes
        guard case .staged = try await world.stage() else { throw Failure() }
        #expect(try world.staged() == versions[1])
        let sent = world.bundleBytes - before
        #expect(bend == .none ? sent == 0 : sent > 0)
        #expect(world.log.all.contains { $0.contains("a part is damaged") } == (bend != .none))
    }

    /// Old content that a part refers to is damaged.
    @Test func damagedOldContentCostsPiecesOnly() async throws {
        _ = try await publishBoth()
        try overwrite(world.path(of: "large"), noise(30_000, seed: 99), at: 400_000)
        #expect(try await update() < 1_500_000)
    }
}

extension PatchTable {
    /// Reads the table and the ranges of the frames of a patch.
    static func read(from bytes: [UInt8]) throws -> (table: PatchTable, frames: [Range<Int64>]) {
        try #require(read(ofPatchWith: Int64(bytes.count)) { Array(bytes.prefix($0)) })
    }
}
