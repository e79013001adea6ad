import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

/// If a process ends at any step, the next process removes its files together with the partial file.
struct PartialFileTests {
    let folder: TemporaryDirectory

    init() throws { folder = try TemporaryDirectory() }

    private func open() throws -> PartialFile { try PartialFile.open("pack", in: folder.directory) }

    private func begin(_ part: PartialFile, isRecorded: Bool) throws {
        _ = try part.begin(total: 10, validator: nil, url: "http://a/b", isRecorded: isRecorded)
    }

    private var names: [String] {
        get throws { try folder.directory.entries().map(\.path.string).sorted() }
    }

    @Test(arguments: [1, 2, 3], [false, true])
    func nothingIsLeft(generations: Int, isRecorded: Bool) throws {
        let part = try open()
        for _ in 1...generations { try begin(part, isRecorded: isRecorded) }
        #expect(try names.filter { $0.contains(".part.") } == ["pack.part.\(generations)"])
        try open().remove()
        #expect(try names == [])
    }

    /// The file of the next generation cannot be created, which has the same result as the end of the process.
    @Test(arguments: [false, true]) func noOldGenerationStays(isRecorded: Bool) throws {
        let part = try open()
        try begin(part, isRecorded: isRecorded)
        try folder.directory.createDirectory("pack.part.2", permissions: .privateDirectory)
        #expect(throws: FileError.self) { try begin(part, isRecorded: isRecorded) }
        #expect(try names == ["pack.part.2", "pack.state"])
        try folder.directory.removeTree("pack.part.2")
        try open().remove()
        #expect(try names == [])
    }

    /// The record cannot be written, which has the same result as the end of the process before that.
    @Test func bytesWithoutARecordAreRemovedBeforeANewRecordNamesTheirFile() throws {
        let part = try open()
        try folder.directory.write([1, 2, 3], to: "pack.part.1", durably: false)
        try folder.directory.createDirectory("pack.state", permissions: .privateDirectory)
        #expect(throws: FileError.self) { try begin(part, isRecorded: true) }
        #expect(try names == ["pack.state"])
    }

    /// An entity tag and the target of a redirect may each fill the head of a response.
    @Test func aLongRecordIsReadAsItWasWritten() throws {
        let part = try open()
        let slashes = String(repeating: "/", count: 60_000)
        let content = try part.begin(
            total: 10,
            validator: .entityTag("\"\(slashes)\""),
            url: "http://a/b",
            resource: "http://a/\(slashes)",
            isRecorded: true
        )
        try content.file.write([UInt8](repeating: 1, count: 7).span, at: 0)
        part.grow(to: 7)
        try part.checkpoint()
        #expect(try open().durable == 7)
    }

    /// A response that resumes the download is recorded while a checkpoint of earlier bytes ends.
    @Test func aRecordOfANewMirrorCountsWhatACheckpointMadeDurable() async throws {
        for number in 1...300 {
            let part = try open()
            try begin(part, isRecorded: true)
            try part.content?.file.write([UInt8](repeating: 1, count: 7).span, at: 0)
            part.grow(to: 7)
            async let checkpoint: Void = withBlockingThread { () throws(FileError) in
                try part.checkpoint()
            }
            if number.isMultiple(of: 2) { usleep(UInt32(number)) }
            try part.rebind(to: nil, url: "http://b/b", resource: "http://b/b")
            try await checkpoint
            let bytes = try #require(try folder.directory.bytes(of: "pack.state", limit: 9999))
            let record = try #require(PartialFileRecord.decode(bytes))
            #expect(record.durable == 7 && record.url == "http://b/b")
            try part.remove()
        }
    }

    /// Bytes that are durable according to the record are missing, so the others may be wrong, too.
    @Test func aFileThatIsShorterThanItsRecordSaysIsNotResumed() throws {
        let part = try open()
        try begin(part, isRecorded: true)
        try part.content?.file.write([UInt8](repeating: 1, count: 7).span, at: 0)
        part.grow(to: 7)
        try part.checkpoint()
        #expect(try open().length == ByteCount(7))
        try folder.directory.file(updatingExisting: "pack.part.1")?.truncate(to: 6)
        #expect(try open().resumePoint == nil)
        #expect(try names == ["pack.state"])
    }

    @Test func aCheckpointRecordsNewBytesUntilTheContentIsComplete() throws {
        let part = try open()
        try begin(part, isRecorded: true)
        var reports: [ByteCount] = []
        for length in [0, 7, 7, 9] as [Int64] {
            part.grow(to: length)
            try part.checkpoint { reports.append($0) }
        }
        part.complete()
        part.grow(to: 10)
        try part.checkpoint { reports.append($0) }
        #expect(reports == [ByteCount(7), ByteCount(9)])
        #expect(part.durable == 9)
    }

    @Test func aCheckpointOfContentThatNoOtherProcessResumesWritesNoRecord() throws {
        let part = try open()
        try begin(part, isRecorded: false)
        part.grow(to: 7)
        try part.checkpoint()
        #expect(try names == ["pack.part.1"])
    }

    @Test(arguments: [(4, 4, 4), (4, 3, 3), (4, 5, nil), (4, 0, nil), (1 << 18 | 1, 4, nil)])
    func contentWithoutARecordIsResumedIfADigestWillTell(
        total: Int,
        count: Int,
        resumed: Int64?
    ) throws {
        try folder.directory.write(
            [UInt8](repeating: 1, count: count),
            to: "pack.part.1",
            durably: false
        )
        let part = try PartialFile.open(
            "pack",
            in: folder.directory,
            digestedSize: ByteCount(total)
        )
        #expect(part.resumePoint?.length == resumed)
        #expect(try open().resumePoint == nil)
    }

    /// The record cannot be removed, which has the same result as the end of the process.
    @Test func aRecordOutlivesItsContent() throws {
        let part = try open()
        for _ in 1...2 { try begin(part, isRecorded: true) }
        try folder.directory.remove("pack.state")
        try folder.directory.createDirectory("pack.state", permissions: .privateDirectory)
        #expect(throws: TransferError.self) { try part.remove() }
        #expect(try names == ["pack.state"])
    }
}
