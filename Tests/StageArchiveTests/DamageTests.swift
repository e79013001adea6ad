import StageArchive
import StageModel
import StageTesting
import Testing

/// Archives that are truncated, changed or too large: never a success, never a hang.
@Suite(.directory) struct DamageTests {
    @Test(arguments: ArchiveFormat.tars)
    func anArchiveCutAtAnyBlockIsRefused(format: ArchiveFormat) async throws {
        var bench = try Bench()
        let archive = try format.compress(SampleTree.tar)
        for count in stride(from: 0, to: archive.count, by: 512 * (1 + archive.count >> 16)) {
            let error = try await bench.refusal(Array(archive[..<count]), format)
            #expect(error != nil, "cut at \(count) of \(archive.count)")
        }
    }

    @Test(arguments: ArchiveFormat.tars)
    func aSmallArchiveCutAtAnyByteIsRefused(format: ArchiveFormat) async throws {
        var bench = try Bench()
        let archive = try format.compress(SampleTree.tiny)
        let step = format == .tar ? 64 : 1
        for count in stride(from: 0, to: archive.count, by: step) {
            let error = try await bench.refusal(Array(archive[..<count]), format)
            #expect(error != nil, "cut at \(count) of \(archive.count)")
        }
    }

    @Test(arguments: ArchiveFormat.tars)
    func bytesAfterTheArchiveAreRefused(format: ArchiveFormat) async throws {
        var bench = try Bench()
        let archive = try format.compress(SampleTree.tiny)
        let block = [UInt8](repeating: 0x41, count: 512)
        #expect(try await bench.refusal(archive + block, format) != nil)
        #expect(try await bench.refusal(archive + archive, format) != nil)
        let longer = try format.compress(SampleTree.tiny + block)
        #expect(try await bench.refusal(longer, format) != nil)
        let padded = try format.compress(SampleTree.tiny + [UInt8](repeating: 0, count: 8192))
        #expect(try await bench.refusal(padded, format) == nil)
    }

    @Test(arguments: ArchiveFormat.tars)
    func changedBytesNeverWriteOutside(format: ArchiveFormat) async throws {
        var bench = try Bench()
        var random = SeededGenerator(seed: 11)
        let archive = try format.compress(SampleTree.tiny)
        for _ in 0..<100 {
            var changed = archive
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                changed[Int.random(in: changed.indices, using: &random)] ^=
                    1 << UInt8.random(in: 0..<8, using: &random)
            }
            // Some changes are harmless; each time, the test checks that nothing is written elsewhere.
            _ = try await bench.refusal(changed, format)
        }
    }

    @Test(arguments: [ArchiveFormat.tar, .tarZstandard])
    func noByteMoreThanDeclaredIsWritten(format: ArchiveFormat) async throws {
        var bench = try Bench()
        let content = [UInt8](repeating: 0, count: 1 << 20)
        let tar = TarBuilder(.init("a", content: content), .init("b", content: content))
        let archive = try format.compress(tar.bytes)
        bench.limits.bytes = .mebibytes(2)
        #expect(try await bench.refusal(archive, format) == nil)
        bench.limits.bytes = ByteCount(Int64(2 << 20 - 1))
        let limit = bench.limits.bytes
        #expect(try await bench.refusal(archive, format) == .tooLarge(entry: "b", limit: limit))
    }

    @Test func noEntryMoreThanDeclaredIsMade() async throws {
        var bench = try Bench()
        bench.limits.entries = 2
        let link = TarBuilder.Entry("l", .link, target: "a")
        let two = TarBuilder(.init("d", .directory), .init("a"), link)
        #expect(try await bench.refusal(two.bytes, .tar) == nil)
        let three = TarBuilder(.init("a"), link, .init("b"))
        let error = ArchiveError.tooManyEntries(entry: "b", limit: 2)
        #expect(try await bench.refusal(three.bytes, .tar) == error)
        let copy = TarBuilder(.init("a"), link, .init("h", .hardLink, target: "a"))
        let second = ArchiveError.tooManyEntries(entry: "h", limit: 2)
        #expect(try await bench.refusal(copy.bytes, .tar) == second)
    }

    @Test func directoriesHaveABoundOfTheirOwn() async throws {
        var bench = try Bench()
        bench.limits.entries = 0
        var builder = TarBuilder()
        for index in 0...4096 { builder.add(.init("d\(index)", .directory)) }
        builder.finish()
        let error = ArchiveError.tooManyEntries(entry: "d4096", limit: 4096)
        #expect(try await bench.refusal(builder.bytes, .tar) == error)
    }

    /// Counts the directories that are created, and not the entries that name them.
    @Test func noDirectoryMoreThanStatedIsMade() async throws {
        var bench = try Bench()
        let tar = TarBuilder(
            .init("./", .directory),
            .init("a/b/file"),
            .init("a/", .directory),
            .init("a/", .directory),
            .init("empty", .directory)
        )
        bench.limits.statedDirectories = 3
        #expect(try await bench.refusal(tar.bytes, .tar) == nil)
        bench.limits.statedDirectories = 2
        let error = ArchiveError.tooManyEntries(entry: "empty", limit: 2)
        #expect(try await bench.refusal(tar.bytes, .tar) == error)
    }

    @Test func copiesCountInBytes() async throws {
        var bench = try Bench()
        bench.limits.bytes = ByteCount(Int64(11))
        let entries = TarBuilder(
            .init("a", content: [1, 2, 3, 4, 5, 6]),
            .init("h", .hardLink, target: "a")
        )
        let error = ArchiveError.tooLarge(entry: "h", limit: bench.limits.bytes)
        #expect(try await bench.refusal(entries.bytes, .tar) == error)
    }
}
