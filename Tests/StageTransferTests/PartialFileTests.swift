import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

/// Files that a process leaves when it ends at any step are removed with the partial file by the next process.
struct PartialFileTests {
    let place: TemporaryDirectory

    init() throws { place = try TemporaryDirectory() }

    private func open() throws -> PartialFile { try PartialFile.open("pack", in: place.directory) }

    private func begin(_ part: PartialFile, isRecorded: Bool) throws {
        _ = try part.begin(total: 10, validator: nil, url: "http://a/b", isRecorded: isRecorded)
    }

    private var names: [String] {
        get throws { try place.directory.entries().map(\.path.string).sorted() }
    }

    @Test(arguments: [1, 2, 3], [false, true])
    func nothingIsLeft(generations: Int, isRecorded: Bool) throws {
        let part = try open()
        for _ in 1...generations { try begin(part, isRecorded: isRecorded) }
        #expect(try names.filter { $0.contains(".part.") } == ["pack.part.\(generations)"])
        try open().remove()
        #expect(try names == [])
    }

    /// The next generation's file cannot be made, as if the process had ended before.
    @Test(arguments: [false, true]) func noOldGenerationStays(isRecorded: Bool) throws {
        let part = try open()
        try begin(part, isRecorded: isRecorded)
        try place.directory.createDirectory("pack.part.2", permissions: .privateDirectory)
        #expect(throws: FileError.self) { try begin(part, isRecorded: isRecorded) }
        #expect(try names == ["pack.part.2", "pack.state"])
        try place.directory.removeTree("pack.part.2")
        try open().remove()
        #expect(try names == [])
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
            let bytes = try #require(try place.directory.bytes(of: "pack.state", limit: 9999))
            let record = try #require(PartialFileRecord.decode(bytes))
            #expect(record.durable == 7 && record.url == "http://b/b")
            try part.remove()
        }
    }

    /// The record cannot be removed, as if the process had ended before.
    @Test func aRecordOutlivesItsContent() throws {
        let part = try open()
        for _ in 1...2 { try begin(part, isRecorded: true) }
        try place.directory.remove("pack.state")
        try place.directory.createDirectory("pack.state", permissions: .privateDirectory)
        #expect(throws: TransferError.self) { try part.remove() }
        #expect(try names == ["pack.state"])
    }
}
