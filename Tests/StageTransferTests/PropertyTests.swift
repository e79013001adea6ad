import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageTransfer

/// A server with random behaviour, for downloads that are abandoned and resumed.
@Suite(.server) struct PropertyTests {
    let server = TestServer.current
    static let size = 300_000
    static let content = noise(size, seed: 5)
    static let other = noise(size, seed: 6)

    /// Correct and incorrect responses, most of them truncated.
    private static func answer(_ numbers: inout JitterGenerator) -> Answer {
        let good = Answer.content(content)
        let cut = Int.random(in: 0..<size, using: &numbers)
        let shift = Int.random(in: -9000..<9000, using: &numbers)
        switch Int.random(in: 0..<16, using: &numbers) {
        case 0: return .dropped
        case 1: return .portal
        case 2: return .status(503)
        case 3: return good.ignoringRanges().cut(after: cut)
        case 4: return good.tagged(nil).cut(after: cut)
        case 5: return good.with { $0.rangeShift = shift }.cut(after: cut)
        case 6: return Answer.content(other).cut(after: cut)
        case 7: return Answer.content(other).ignoringIfRange().cut(after: cut)
        case 8: return Answer.content(other).tagged(good.entityTag).cut(after: cut)
        case 9: return good.chunked().cut(after: cut)
        case 10: return Answer.content(Array(content[..<cut]))
        case 11: return good.field("Content-Range", "bytes 1-\(cut + 1)/\(size)").cut(after: cut)
        case 12: return good.omitting("Content-Range").cut(after: cut)
        case 13: return .status(416).field("Content-Range", "bytes */\(cut)")
        default: return good.cut(after: cut)
        }
    }

    @Test(arguments: 0..<12)
    func nothingButTheContentIsEverASuccess(seed: Int) async throws {
        var numbers = JitterGenerator(seed: UInt64(seed))
        let directory = try TemporaryDirectory()
        for _ in 0..<6 {
            server.answer("/pack", with: (0..<4).map { _ in Self.answer(&numbers) })
            let boot = Bool.random(using: &numbers) ? BootID.current : BootID("\(seed)")
            let part = try PartialFile.open("pack", in: directory.directory, boot: boot)
            var request = DownloadRequest(server.url("/pack"), content: Self.content)
            request.isContentAddressed = seed.isMultiple(of: 2)
            if await failure(of: request, to: part) == nil {
                #expect(fileContent(part.path) == Self.content)
            }
        }
        server.answer("/pack", with: .content(Self.content))
        let part = try PartialFile.open("pack", in: directory.directory)
        try await download(DownloadRequest(server.url("/pack"), content: Self.content), to: part)
        #expect(fileContent(part.path) == Self.content)
        let names = try directory.directory.entries().map(\.path.string)
        #expect(names.count == 2, "\(names)")
    }

    @Test(arguments: 0..<4)
    func nothingIsReceivedTwiceHoweverOftenTheTransferDies(seed: Int) async throws {
        var numbers = JitterGenerator(seed: UInt64(seed))
        let directory = try TemporaryDirectory()
        var received: Int64 = 0
        var cuts = 0
        while cuts < 40 {
            let rest = Int.random(in: 1...(Self.size / 20), using: &numbers)
            server.answer("/pack", with: .content(Self.content).cut(after: rest))
            let part = try PartialFile.open("pack", in: directory.directory)
            if part.length == ByteCount(Self.size) { break }
            let request = DownloadRequest(server.url("/pack"), content: Self.content)
            _ = await failure(of: request, to: part, .single)
            cuts += 1
        }
        received = Int64(server.counts(for: "/pack").bytes)
        #expect(received <= Int64(Self.size))
    }
}
