import StageContainer
import StageDigest
import StageEngine
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// First installations that restore the index from the files of the archive.
@Suite(.directory, .server)
struct FileTableDeltaTests {
    private let world: IndexedWorld

    init() throws { world = try IndexedWorld() }

    /// Many small files, so that digests are most of the index; the order of paths differs from that of names.
    private static let tree: [String: [UInt8]] = {
        var tree: [String: [UInt8]] = [
            "run.sh": [1, 2], "empty": [], "a.c": [3], "a/b": [4], "a-/b": [5], "a/b.c/d": [6],
            "caf\u{E9}/a": [7], "cafe\u{301}/b": [8], "large": noise(300_000),
        ]
        for number in 0..<300 as Range<UInt16> {
            tree["small/\(number)"] = [UInt8(number >> 8), UInt8(number & 0xFF)]
        }
        return tree
    }()

    private func publish() async throws -> (pack: Pack, delta: PackIndex.CompanionDelta) {
        try await world.publish(
            Self.tree,
            links: ["a/link": "b", "zz": "a/b.c"],
            directories: ["a-b", "a/b.d", "a/c/d"],
            archive: true
        )
        let pack = try #require(world.pack)
        return (pack, try #require(pack.index?.fileTableDelta))
    }

    private func requests(_ url: String) -> Int { world.server.counts(for: "/" + url).requests }

    private func expectStaged() throws {
        var expected = Self.tree
        for link in ["a/link → b", "zz → a/b.c", "a-b/", "a/b.d/", "a/c/d/"] { expected[link] = [] }
        #expect(try world.staged() == expected)
        #expect(try Directory.open(world.path(of: "")).status("run.sh")?.mode == 0o755)
        let container = try #require(try Container.open(world.root.path.appending("container")))
        #expect(try container.differences(in: try PackID("levels")) == [])
        #expect(try container.root.directory("staging")?.entries() == [])
    }

    @Test func theIndexIsNotDownloaded() async throws {
        let (pack, delta) = try await publish()
        let index = try #require(pack.index)
        #expect(delta.size + delta.size < index.size)
        guard case .staged(let figures) = try await world.stage() else {
            Issue.record("not staged")
            return
        }
        try expectStaged()
        #expect(requests(index.url) == 0 && world.bundleRequests == 0)
        #expect(requests(delta.url) == 1 && world.archiveRequests == 1)
        #expect(figures.transferred == delta.size + (pack.archive?.size ?? .zero))
        #expect(figures.transferred == pack.downloadSize)
    }

    /// Neither object waits for the other: the server sends the delta only once the archive was requested.
    @Test func deltaAndArchiveAreRequestedAtOnce() async throws {
        let (pack, delta) = try await publish()
        let gate = Gate()
        let answer = Answer.content(try world.object("/" + delta.url))
        world.server.answer("/" + delta.url, with: answer.held(after: 0, until: gate))
        let (server, archive) = (world.server, try #require(pack.archive).url)
        async let opening: Void = server.open(gate, afterRequestFor: archive)
        _ = try await world.stage()
        try await opening
        try expectStaged()
        #expect(requests(delta.url) == 1 && world.archiveRequests == 1)
    }

    /// The restored index is the base of the next update.
    @Test func anUpdateGoesByTheRestoredIndex() async throws {
        _ = try await publish()
        _ = try await world.stage()
        var tree = Self.tree
        tree["small/7"] = [9]
        try await world.publish(tree, archive: true)
        guard case .staged(let figures) = try await world.stage() else {
            Issue.record("not staged")
            return
        }
        #expect(try world.staged() == tree)
        #expect(figures.transferred < ByteCount(2000))
    }

    /// A delta that cannot be used costs the bytes of the index; the archive is downloaded once.
    @Test(arguments: [
        Answer.status(404), .status(403), .status(503), .content([1, 2, 3]), .content(noise(900)),
        .dropped, .redirect(to: "http://127.0.0.1:1/a"), .redirect(to: "ftp://127.0.0.1/a"),
    ])
    func withoutTheDeltaTheIndexIsDownloaded(answer: Answer) async throws {
        let (pack, delta) = try await publish()
        world.server.answer("/" + delta.url, with: answer)
        _ = try await world.stage()
        try expectStaged()
        #expect(requests(try #require(pack.index?.url)) == 1)
        #expect(world.archiveRequests + world.bundleRequests > 0 && world.archiveRequests < 2)
    }

    /// A delta with the digest in the manifest, from which the index cannot be restored.
    @Test func aDeltaThatLeadsElsewhereIsMadeUpForByTheIndex() async throws {
        var (pack, delta) = try await publish()
        let bytes = noise(500)
        delta = PackIndex.CompanionDelta(
            url: "i/other",
            size: ByteCount(bytes.count),
            digest: Digest(of: bytes)
        )
        pack.index?.fileTableDelta = delta
        try world.serve(offering: pack)
        world.server.answer("/i/other", with: .content(bytes))
        _ = try await world.stage()
        try expectStaged()
        #expect(requests(try #require(pack.index?.url)) == 1 && world.archiveRequests == 1)
        #expect(world.bundleRequests == 0)
    }

    /// If an index exceeds the size that so few files permit, it is refused before the archive is downloaded.
    @Test func anIndexThatCannotBeOfTheFilesIsRefusedBeforeTheArchive() async throws {
        var (pack, delta) = try await publish()
        pack.index?.contentSize = .mebibytes(255)
        try world.serve(offering: pack)
        guard case .failed(.index(let reason)) = try await world.stage() else {
            Issue.record("staged with an index of 255 MiB")
            return
        }
        #expect(reason.contains("larger than one of"))
        #expect(requests(delta.url) == 0 && world.archiveRequests == 0)
    }

    /// A run that ended before the index was restored has downloaded a part of the archive.
    @Test func theNextRunContinuesTheArchive() async throws {
        let (pack, delta) = try await publish()
        let archive = try #require(pack.archive)
        let path = "/" + archive.url
        let content = try bytes(of: world.store.path.appending(archive.url))
        let half = content.count / 2
        let broken = [Answer](repeating: .dropped, count: 40)
        world.server.answer(path, with: [.content(content).cut(after: half)] + broken)
        guard case .failed(.transfer) = try await world.stage() else {
            Issue.record("staged from a server that does not answer")
            return
        }
        try world.serve()
        guard case .staged(let figures) = try await world.stage() else {
            Issue.record("not staged")
            return
        }
        try expectStaged()
        #expect(figures.reused == ByteCount(half))
        #expect(world.archiveBytes == content.count && world.bundleRequests == 0)
        #expect(requests(try #require(pack.index?.url)) == 0 && requests(delta.url) == 2)
    }
}
