import Foundation
import StageContainer
import StageModel
import StageSystem
import SystemPackage
import Testing

/// Single files of packs that are not staged: they are kept while a process uses them.
@Suite(.container) struct PartialContentTests {
    private let container: Container
    private let digest = Digest(bytes: [UInt8](repeating: 7, count: Digest.byteCount))

    init() throws { container = try Container.make(ContainerTrait.path) }

    private func make() throws -> PartialContent {
        let content = try #require(try container.makePartialContent(of: digest))
        try content.directory.makeDirectory("content").leave("sky.svg", "blue")
        return content
    }

    private func removeAll() throws -> Removal {
        try container.removePartialContent { _ in false }
    }

    private func removal(leftovers: Int = 0, inUse: Int = 0) -> Removal {
        var removal = Removal()
        (removal.leftovers, removal.inUse) = (leftovers, inUse)
        return removal
    }

    @Test func filesInUseStay() throws {
        var made: PartialContent? = try make()
        var read = try container.reader.partialContent(of: digest)
        let location = try #require(read).content
        #expect(try removeAll() == removal(inUse: 1))
        made = nil
        #expect(try removeAll() == removal(inUse: 1))
        #expect(try String(contentsOfFile: "\(location)/sky.svg", encoding: .utf8) == "blue")
        _ = (made, read)
        read = nil
        #expect(try removeAll() == removal(leftovers: 1))
        #expect(!FileStatus.exists(location))
        #expect(try container.reader.partialContent(of: digest) == nil)
        #expect(try container.root.directory("staging")?.entries() == [])
    }

    @Test func wantedPartialContentIsNotRemoved() throws {
        _ = try make()
        #expect(try container.removePartialContent { $0 == digest } == removal())
        #expect(try container.reader.partialContent(of: digest) != nil)
    }

    @Test func aFileIsOneThatIsWholeAndInside() throws {
        let content = try make()
        let directory = try #require(try content.directory.directory("content"))
        try directory.createLink("link", to: "sky.svg")
        try directory.createLink("out", to: "../lease")
        try directory.createLink("dangling", to: "nothing")
        try directory.makeDirectory("folder").leave("x", "x")
        let found = try ["sky.svg", "link", "out", "dangling", "folder", "folder/x", "sky.svg/x"]
            .filter { try content.hasFile(FilePath($0)) }
        #expect(found == ["sky.svg", "link", "folder/x"])
    }

    @Test func theLockFileOfADeadProcessIsRemovedWithTheNextLeftovers() throws {
        let name = ContainerLayout.downloadName(ofFile: digest)
        for file in ["\(name).part.1", "\(name).lock"] {
            try container.downloads.leave(try #require(FilePath.Component(file)), "left")
        }
        // The partial files are a minute old, and received bytes are kept for a week.
        let now = Int64(Date().timeIntervalSince1970) + 60
        let removal = container.removeLeftovers(now: now, offering: OfferedContent())
        #expect(removal == self.removal())
        #expect(try container.downloads.entries().map(\.path.string) == ["\(name).part.1"])
    }

    @Test func aDirectoryThatACrashLeftWithoutALeaseIsNoFault() throws {
        _ = try make()
        let path = FilePath("files/\(digest)")
        try #require(try container.root.directory(path)).remove("lease")
        #expect(try container.reader.faults() == [])
        #expect(try removeAll() == removal(leftovers: 1))
    }

    @Test func makersReadersAndRemoversMeetNeverInBetween() async throws {
        let (container, digest) = (container, digest)
        let end = ContinuousClock.now + .seconds(2)
        try await withThrowingTaskGroup(of: Void.self) { group in
            // Threads of the system, which may be suspended between any two calls.
            for number in 0..<8 {
                group.addTask {
                    try await withBlockingThread {
                        while ContinuousClock.now < end {
                            guard number < 3 else {
                                _ = try container.removePartialContent { _ in false }
                                continue
                            }
                            let content = try container.makePartialContent(of: digest)
                            guard let content else { continue }
                            try content.directory.createDirectory("content")
                            for _ in 0..<8 {
                                sched_yield()
                                // The directory keeps its name while it is in use.
                                #expect(FileStatus.exists(content.content))
                            }
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
    }
}
