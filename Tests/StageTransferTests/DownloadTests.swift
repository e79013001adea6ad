import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

@Suite(.server) struct DownloadTests {
    let server = TestServer.current
    let folder: TemporaryDirectory
    let part: PartialFile

    init() throws {
        folder = try TemporaryDirectory()
        part = try PartialFile.open("pack", in: folder.directory)
    }

    @Test(arguments: [0, 1, 1000, 1 << 18, 1 << 18 + 1, 3 << 20])
    func contentOfAnySizeArrives(size: Int) async throws {
        let content = noise(size)
        let events = Events()
        server.answer("/pack", with: .content(content))
        let request = DownloadRequest(server.url("/pack"), content: content, events: events)
        let receipt = try await download(request, to: part)
        #expect(fileContent(part.path) == content)
        #expect(receipt.bytesReceived == ByteCount(size))
        #expect(receipt.bytesReused == .zero)
        #expect(receipt.attempts == 1)
        #expect(receipt.url == server.url("/pack"))
        #expect(events.offsets == [0])
        if size > 0 { #expect(events.all.last == .received(ByteCount(size))) }
    }

    @Test func aChunkedBodyArrives() async throws {
        let content = noise(100_000)
        server.answer("/pack", with: .content(content).chunked())
        try await download(DownloadRequest(server.url("/pack"), content: content), to: part)
        #expect(fileContent(part.path) == content)
    }
}
