import Foundation
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Small archives, which have no record, after a run was killed before it published the pack.
@Suite(.server, .directory)
struct SmallDownloadTests {
    /// The content of the partial file that the killed run left.
    enum Remains: CaseIterable, Sendable {
        case everything, half, nothing, wrongBytes, wrongHalf, tooMuch, link

        func bytes(of archive: [UInt8]) -> [UInt8] {
            switch self {
            case .everything: archive
            case .half: Array(archive[..<(archive.count / 2)])
            case .nothing: []
            case .wrongBytes, .link: archive.map { ~$0 }
            case .wrongHalf: archive[..<(archive.count / 2)].map { ~$0 }
            case .tooMuch: archive + [0]
            }
        }

        /// The number of bytes that need not be sent again, of an archive of `size` bytes.
        func reused(of size: Int) -> Int {
            switch self {
            case .everything: size
            case .half: size / 2
            case .nothing, .wrongBytes, .wrongHalf, .tooMuch, .link: 0
            }
        }

        /// The number of bytes that are sent, of an archive of `size` bytes.
        func sent(of size: Int) -> Int {
            // The missing half is downloaded first, and everything again if the digest is wrong.
            self == .wrongHalf ? size - size / 2 + size : size - reused(of: size)
        }
    }

    private struct Runs: Decodable {
        struct Run: Decodable {
            var packs: [Pack]
        }

        struct Pack: Decodable {
            var id: String
            var transferred, reused: Int?
        }

        var runs: [Run]
    }

    @Test(arguments: Remains.allCases) func theNextRunContinues(_ remains: Remains) async throws {
        var world = try World()
        let other = try SamplePack.small(try PackID("oceans"))
        try world.publish(other)
        // Makes the container.
        try await world.succeed("prefetch", "--quiet")
        var pack = try SamplePack.small(.aurora)
        // Only content of a URL that contains its digest can be continued without a record.
        let digest = pack.pack.contentDigest
        pack.pack.archive?.url = "packs/\(digest).tar.zst"
        try world.publish(pack, other)
        let downloads = try #require(try Directory.open(world.container).directory("downloads"))
        let name = try #require(FilePath.Component("\(digest).part.1"))
        if remains == .link {
            try world.directory.write(pack.archive, to: "elsewhere", durably: false)
            try downloads.createLink(FilePath(name), to: "../../elsewhere")
        } else {
            try downloads.write(remains.bytes(of: pack.archive), to: name, durably: false)
        }

        let output = try await world.succeed("prefetch", "--json")

        let (size, reused) = (pack.archive.count, remains.reused(of: pack.archive.count))
        let runs = try JSONDecoder().decode(Runs.self, from: Data(output.utf8)).runs
        let staged = try #require(runs.first?.packs.first { $0.id == "aurora" })
        #expect(staged.reused == reused)
        #expect(staged.transferred == remains.sent(of: size))
        #expect(try world.staged(.aurora) == StagedFiles(pack))
        #expect(try world.names(in: "downloads") == [])
    }
}
