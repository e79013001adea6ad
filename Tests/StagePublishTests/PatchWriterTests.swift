import StageDigest
import StageFrame
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Patches between versions in a publisher's store.
@Suite(.directory)
struct PatchWriterTests {
    private let store: IndexedStore

    init() throws { store = try IndexedStore() }

    /// A file in which every other 4 KiB differ between versions.
    private func content(_ version: UInt64, group: UInt64) -> [UInt8] {
        var content = noise(200_000, seed: group + 1)
        for offset in stride(from: 0, to: content.count - 8192, by: 8192) {
            let other = noise(4096, seed: group << 32 + version * 1000 + UInt64(offset))
            content.replaceSubrange(offset..<offset + 4096, with: other)
        }
        return content
    }

    /// Near copies of one file, with other bytes in each version.
    private func tree(_ version: UInt64) -> [String: [UInt8]] {
        var files = nearCopies(of: content(version, group: 0), count: 6)
        files["small"] = [UInt8(version), 3]
        return files
    }

    private func package(
        _ version: UInt64,
        after old: [IndexedPack] = []
    ) async throws -> IndexedPack {
        try await store.package(tree(version), "tree", after: old.first?.index ?? ContentIndex()) {
            $0.makesPatches = true
            $0.older = old.dropFirst().map(\.index)
        }
    }

    /// Returns the pieces of a version that another one lacks.
    private func bytes(of version: IndexedPack, notIn other: IndexedPack) throws -> [UInt8] {
        try bytes(of: PatchContent(of: version.index, notIn: other.index), in: version)
    }

    private func bytes(of content: PatchContent, in version: IndexedPack) throws -> [UInt8] {
        let files = try store.files(of: version.index)
        return content.pieces.flatMap { piece in
            let path = version.index.entries.path(at: piece.entry).text
            let start = Int(piece.offset)
            return files[path]?[start..<start + piece.length] ?? []
        }
    }

    @Test func aPatchIsSmallerThanTheSetAndTheArchive() async throws {
        let first = try await package(1)
        let second = try await package(2, after: [first])
        let update = try #require(second.updates.first)
        let patch = try #require(update.delta?.patch)
        guard case .made(patch.size) = update.patch, case .useless(let set) = update.set else {
            Issue.record("\(update.patch) \(update.set)")
            return
        }
        #expect(patch.size < set && patch.size < second.archive?.size ?? .zero)
        #expect(update.delta?.frames == nil && update.cost.total == update.cost.index + patch.size)
        #expect(update.plainCost.total > update.cost.total)
        #expect(try store.directory().directory("d") == nil)
        let content = try self.bytes(of: second, notIn: first)
        #expect(try decoded(patch, from: first, to: second) == content)
        // The patch has one part, whose table has few bytes.
        #expect(ByteCount(content.count) == patch.windowSize)
        let prefix = try self.bytes(of: first, notIn: second)
        #expect(ByteCount(prefix.count) == patch.prefixSize)
        var compressor = FrameCompressor(level: 19, findsDistantRepeats: true)
        let frame = compressor.compress(content.span, after: prefix.span)
        #expect(patch.size <= ByteCount(frame.count + 25))
        // 'manifest add' finds it.
        #expect(try store.stored(second).reference.deltas == [update.delta])
    }

    /// Decodes a patch according to its format.
    private func decoded(
        _ patch: PackIndex.Patch,
        from old: IndexedPack,
        to new: IndexedPack
    ) throws -> [UInt8] {
        let bytes = try store.bytes(patch.url)
        #expect(Digest(of: bytes) == patch.digest && ByteCount(bytes.count) == patch.size)
        let (table, frames) = try #require(
            PatchTable.read(ofPatchWith: Int64(bytes.count)) { Array(bytes.prefix($0)) }
        )
        #expect(table.windowSize == patch.windowSize && table.prefixSize == patch.prefixSize)
        let source = PatchContent(of: old.index, firstNotIn: new.index)
        let all = try self.bytes(of: source, in: old)
        var decompressor = FrameDecompressor()
        return try zip(table.parts, frames).flatMap { part, frame in
            let prefix = part.prefix.flatMap { all[Int($0.lowerBound)..<Int($0.upperBound)] }
            let bytes = try decompressor.decompress(
                Array(bytes[Int(frame.lowerBound)..<Int(frame.upperBound)]).span,
                after: prefix.span,
                to: part.decompressedLength
            )
            guard part.runsLength > 0 else { return bytes }
            var runs = SimilarRunDecoder(part)
            return try runs.restore(bytes.span, after: prefix.span)
        }
    }

    /// Moved addresses cost little, as in a recompiled program.
    @Test(arguments: [nil, 3])
    func aProgramIsComparedByteByByte(level: Int?) async throws {
        let trees = [1, 2].map { ["program": program(300_000, version: $0)] }
        let first = try await store.package(trees[0], "one")
        let second = try await store.package(trees[1], "two", after: first.index) {
            $0.makesPatches = true
            $0.makesArchive = false
            $0.patchLevel = level
        }
        let patch = try #require(second.updates.first?.delta?.patch)
        let content = try bytes(of: second, notIn: first)
        #expect(try decoded(patch, from: first, to: second) == content)
        var compressor = FrameCompressor(level: 19, findsDistantRepeats: true)
        let prefix = try bytes(of: first, notIn: second)
        let frame = compressor.compress(content.span, after: prefix.span)
        #expect(Int(patch.size.rawValue) < frame.count / 4, "\(patch.size) \(frame.count)")
    }

    /// Neither the number of processors nor the time of making a patch changes its bytes.
    @Test func aLargePatchHasPartsOfBoundedSize() async throws {
        /// Groups of near copies, in other directories in each version.
        func tree(_ version: UInt64) -> [String: [UInt8]] {
            var files: [String: [UInt8]] = [:]
            for group in 0..<3 as Range<UInt64> {
                for (number, copy) in nearCopies(of: content(version, group: group), count: 6) {
                    files["\(version) \(group)/\(number)"] = copy
                }
            }
            files["same"] = noise(50_000)
            return files
        }
        let first = try await store.package(tree(1), "one")
        let second = try await store.package(tree(2), "two", after: first.index) {
            $0.makesPatches = true
            $0.patchPartSize = .mebibytes(1)
            // The patch has only one copy of content that several parts share.
            $0.makesArchive = false
        }
        let patch = try #require(second.updates.first?.delta?.patch)
        #expect(patch.windowSize <= .mebibytes(1) && patch.prefixSize <= .mebibytes(1))
        let changed = try bytes(of: second, notIn: first)
        #expect(changed.count > 3_000_000)
        #expect(try decoded(patch, from: first, to: second) == changed)
        // Old files that moved are found: half of each group is new, in each part.
        #expect(patch.size < ByteCount(800_000))
        try store.directory("p").remove(try #require(FilePath(patch.url).lastComponent))
        var writer = DeltaSetWriter(width: 1)
        writer.patchPartSize = .mebibytes(1)
        let again = try await writer.write(
            to: store.stored(second),
            from: [first.index],
            in: store.directory()
        )
        #expect(again.first?.delta?.patch == patch)
        #expect(try store.names(in: "p").count == 1)
        // The default part size has room for all changes in one part.
        try store.directory("p").remove(try #require(FilePath(patch.url).lastComponent))
        let whole = try await DeltaSetWriter(width: 2).write(
            to: store.stored(second),
            from: [first.index],
            in: store.directory()
        )
        #expect(try #require(whole.first?.delta?.patch).windowSize == ByteCount(changed.count))
    }

    /// Every 48th byte differs, so that the versions have no 64 equal bytes in succession.
    @Test func denseChangesOfAFileAreComparedWithTheSameOffsets() async throws {
        let content = noise(3_000_000, seed: 3)
        var changed = content
        for offset in stride(from: 24, to: content.count, by: 48) { changed[offset] ^= 1 }
        let first = try await store.package(["file": content], "one")
        let second = try await store.package(["file": changed], "two", after: first.index) {
            $0.makesPatches = true
            $0.patchPartSize = .mebibytes(1)
            $0.makesArchive = false
        }
        guard case .useless(let size) = try #require(second.updates.first).patch else {
            Issue.record("\(second.updates)")
            return
        }
        #expect(size < ByteCount(700_000))
    }

    /// Packages two versions of one file, the second with patches and no archive, and returns the patch's bytes after
    /// its table, as one part.
    private func onlyFrame(
        _ files: [[UInt8]],
        level: Int? = nil
    ) async throws -> [UInt8] {
        let first = try await store.package(["file": files[0]], "one")
        let second = try await store.package(["file": files[1]], "two", after: first.index) {
            $0.makesPatches = true
            $0.makesArchive = false
            $0.patchLevel = level
        }
        let patch = try #require(second.updates.first?.delta?.patch)
        #expect(try decoded(patch, from: first, to: second) == bytes(of: second, notIn: first))
        let bytes = try store.bytes(patch.url)
        let (table, frames) = try #require(
            PatchTable.read(ofPatchWith: Int64(bytes.count)) { Array(bytes.prefix($0)) }
        )
        #expect(table.parts.count == 1)
        let frame = try #require(frames.first)
        try store.directory("p").remove(try #require(FilePath(patch.url).lastComponent))
        return Array(bytes[Int(frame.lowerBound)...])
    }

    private func frame(_ files: [[UInt8]], level: Int) -> [UInt8] {
        let (old, new) = (files[0], files[1])
        var compressor = FrameCompressor(level: level, findsDistantRepeats: true)
        return compressor.compress(new.span, after: old.span)
    }

    /// Returns two versions of a file of more than 8 MiB, the second with `count` bytes replaced every 14,000 bytes.
    private func largeFile(changing count: Int) -> [[UInt8]] {
        let content = noise(8_400_000)
        let other = noise(count * 600, seed: 2)
        var changed = content
        for number in 0..<600 {
            let offset = 12_000 + number * 14_000
            changed.replaceSubrange(
                offset..<offset + count,
                with: other[number * count..<number * count + count]
            )
        }
        return [content, changed]
    }

    /// The patch consists mainly of new bytes, which no level makes smaller.
    @Test func aLargePartIsCompressedFasterThanASmallOne() async throws {
        let files = largeFile(changing: 64)
        let usual = try await onlyFrame(files)
        #expect(usual == frame(files, level: 12))
        let chosen = try await onlyFrame(files, level: 19)
        #expect(chosen == frame(files, level: 19) && chosen != usual)
    }

    /// The patch consists mainly of match offsets.
    @Test func aLargePartIsCompressedSlowlyWhereItPays() async throws {
        let files = largeFile(changing: 1)
        let usual = try await onlyFrame(files)
        #expect(usual == frame(files, level: 19))
        let chosen = try await onlyFrame(files, level: 3)
        #expect(chosen == frame(files, level: 3) && chosen.count > usual.count)
    }

    @Test func eachBaseHasAPatchAndNothingIsMadeAgain() async throws {
        let (first, second) = (try await package(1), try await package(2))
        let third = try await package(3, after: [second, first])
        #expect(third.updates.count == 2)
        #expect(third.updates.allSatisfy { $0.delta?.patch != nil })
        let names = try store.names(in: "p")
        #expect(names.count == 2)
        let inodes = try names.map { try store.directory("p").status(FilePath($0))?.inode }
        let again = try await DeltaSetWriter(width: 2).write(
            to: store.stored(third),
            from: [second.index, first.index],
            in: store.directory()
        )
        #expect(again.map(\.delta) == third.updates.map(\.delta))
        for update in again {
            #expect(update.patch == .present(update.delta?.patch?.size ?? .zero))
        }
        let repeated = try await package(3, after: [second, first])
        #expect(repeated.reference == third.reference)
        #expect(try names.map { try store.directory("p").status(FilePath($0))?.inode } == inodes)
        #expect(try store.names(in: "p") == names)
    }

    /// Stores may have been created before patches existed.
    @Test func aPatchReplacesAnExistingSet() async throws {
        let first = try await package(1)
        let second = try await store.package(tree(2), "tree", after: first.index) {
            $0.makesPatches = false
            $0.makesArchive = false
        }
        #expect(second.updates.first?.delta?.frames != nil)
        func update(_ makesPatches: Bool) async throws -> BaseUpdate? {
            var writer = DeltaSetWriter(width: 2)
            writer.makesPatches = makesPatches
            return try await writer.write(
                to: store.stored(second),
                from: [first.index],
                in: store.directory()
            ).first
        }
        let without = try #require(try await update(false))
        #expect(without.delta == second.updates.first?.delta)
        let with = try #require(try await update(true))
        #expect(with.delta?.patch != nil && with.delta?.frames == nil)
        #expect(with.cost.total < without.cost.total)
    }

    /// Frames compress as well as a patch where they have nothing in common.
    @Test func aPatchThatSavesNothingIsNotKept() async throws {
        let first = try await store.package(["large": noise(300_000)], "one")
        let second = try await store.package(
            ["large": noise(300_000, seed: 2)],
            "two",
            after: first.index
        ) {
            $0.makesPatches = true
        }
        guard case .useless = try #require(second.updates.first).patch else {
            Issue.record("\(second.updates)")
            return
        }
        #expect(try store.directory().directory("p") == nil)
    }

    @Test func aDamagedPatchIsNotOffered() async throws {
        let first = try await package(1)
        let second = try await package(2, after: [first])
        let patch = try #require(second.updates.first?.delta?.patch)
        var bytes = try store.bytes(patch.url)
        bytes[bytes.count / 2] ^= 1
        let name = try #require(FilePath(patch.url).lastComponent)
        try store.directory("p").write(bytes, to: name, durably: false)
        #expect(try store.stored(second).reference.deltas.first?.patch == nil)
        // The patch is made again.
        let update = try await DeltaSetWriter(width: 2).write(
            to: store.stored(second),
            from: [first.index],
            in: store.directory()
        )
        #expect(update.first?.delta?.patch == patch)
        #expect(try store.stored(second).reference.deltas.first?.patch == patch)
    }

    /// A manifest names 16 deltas; the patches of others are in the store, too.
    @Test func aPatchThatNoDeltaLeadsToIsLeftAlone() async throws {
        let first = try await package(1)
        let second = try await package(2, after: [first])
        let delta = try #require(second.updates.first?.delta)
        let name = try #require(FilePath(delta.url).lastComponent)
        try store.directory("i").remove(name)
        #expect(try store.stored(second).reference.deltas.isEmpty)
        let patch = try #require(delta.patch)
        let path = FilePath(patch.url)
        let inode = try store.directory().status(path)?.inode
        let update = try await DeltaSetWriter(width: 2).write(
            to: store.stored(second),
            from: [first.index],
            in: store.directory()
        )
        #expect(update.first?.delta == delta)
        #expect(try store.directory().status(path)?.inode == inode)
    }

    @Test func garbageCollectionKeepsWhatAManifestNames() async throws {
        let first = try await package(1)
        let second = try await package(2, after: [first])
        try store.directory("p").write([1], to: "not an object", durably: false)
        func manifest(_ pack: Pack) throws -> Manifest {
            Manifest(application: try ApplicationID("net.example.game"), revision: 1, packs: [pack])
        }
        let names = try store.names(in: "p")
        func collect(_ pack: Pack) async throws {
            _ = try await store.collect(keeping: [manifest(pack)], for: 0)
        }
        try await collect(second.pack(version: 2))
        #expect(try store.names(in: "p") == names && names.count == 2)
        var pack = second.pack(version: 2)
        pack.index?.deltas[0].patch = nil
        try await collect(pack)
        #expect(try store.names(in: "p") == ["not an object"])
    }
}
