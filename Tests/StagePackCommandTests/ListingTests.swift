import Foundation
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The commands that show packs, applications and versions.
@Suite(.server, .directory)
struct ListingTests {
    private static func masked(_ text: String, _ world: World) -> String {
        world.masked(text).replacing(#/\d+ seconds? ago/#, with: "AGO").replacing(
            "(now)",
            with: "(AGO)"
        )
        .replacing(#/\d{4}-\d\d-\d\d \d\d:\d\d/#, with: "TIME")
    }

    private static func world() async throws -> World {
        var world = try World()
        try world.publish(
            try SamplePack.small(.aurora),
            try SamplePack.small(try PackID("on-demand"), policy: .onDemand)
        )
        try await world.succeed("prefetch")
        return world
    }

    @Test func stagedPacksAreListedAndOthersOnRequest() async throws {
        let world = try await Self.world()
        let staged = Self.masked(try await world.succeed("ls"), world)
        #expect(
            staged == """
                pack    version  size     staged
                aurora  1        20.0 kB  AGO

                """
        )
        let all = Self.masked(try await world.succeed("ls", "--missing"), world)
        #expect(all.split(separator: "\n").last == "on-demand  -        20.0 kB  not staged")
        let json = try await world.succeed("ls", "--json")
        #expect(json.contains(#""id" : "aurora""#))
        #expect(!json.contains("on-demand"))
    }

    @Test func aPackIsShownWithEverythingThatIsKnownOfIt() async throws {
        let world = try await Self.world()
        let text = Self.masked(try await world.succeed("info", "aurora"), world)
        #expect(
            text == """
                pack       aurora
                state      staged
                version    1
                offered    version 1
                policy     essential
                size       20.0 kB
                download   20.2 kB
                staged     TIME (AGO)
                from       SERVER/packs/aurora-1.tar.zst
                directory  DIRECTORY/container/packs/aurora
                container  DIRECTORY/container

                """
        )
        let missing = try await world.run("info", "nothing")
        #expect(missing.status == 13)
        #expect(missing.error.hasPrefix("stagepack: error: "))
        #expect(try await world.run("info", "on-demand", "--json").output.contains(#""missing""#))
    }

    @Test func theSpaceOfAllVersionsIsCounted() async throws {
        var world = try await Self.world()
        let larger = try SamplePack(
            .aurora,
            version: 2,
            [.init("images/one.png", content: noise(60_000, seed: 2))]
        )
        try world.publish(larger)
        try await world.succeed("prefetch")
        struct Listing: Decodable { var containers: [Usage] }
        struct Usage: Decodable {
            struct Pack: Decodable, Equatable {
                var id: String
                var current: Int
                var kept: Int
            }
            var packs: [Pack]
            var downloads: Int
            var total: Int
        }
        let json = try await world.succeed("du", "--json")
        let listing = try JSONDecoder().decode(Listing.self, from: Data(json.utf8))
        let usage = try #require(listing.containers.first)
        let pack = try #require(usage.packs.first)
        #expect(usage.packs.map(\.id) == ["aurora"])
        #expect(pack.current >= 60_000)
        #expect((20_000..<60_000).contains(pack.kept))
        #expect(usage.total == pack.current + pack.kept + usage.downloads)
        let lines = try await world.succeed("du").split(separator: "\n").map(String.init)
        #expect(lines.first == "container \(world.container)")
        #expect(lines[1].split(separator: " ") == ["pack", "current", "kept", "total"])
        #expect(lines.count == 5)
    }

    @Test func aRegistrationIsRemovedByTheUserThatMadeIt() async throws {
        var installed = try await Installed()
        try installed.world.publish(try SamplePack.small(.aurora))
        try installed.uninstall()
        let directory = installed.world.directory
        let copy: FilePath.Component = "net.example.wallpaper.json"
        try directory.write(installed.registration.json(), to: copy, durably: false)
        let path = directory.path.appending(copy).string
        #expect(try await installed.run("app", "register", path).status == 0)
        #expect(try await installed.run("prefetch", "--all").status == 0)
        let removed = try await installed.run("app", "unregister", "net.example.wallpaper")
        #expect(removed.status == 0, "\(removed)")
        #expect(removed.output.hasPrefix("net.example.wallpaper: removed '"))
        let list = try await installed.run("app", "list", "--json")
        #expect(!list.output.contains("net.example.wallpaper"))
        // The packs stay.
        #expect(try installed.staged() == ["aurora": 1])
        let again = try await installed.run("app", "unregister", "net.example.wallpaper")
        #expect(again.status == 11, "\(again)")
    }

    @Test func aRegistrationThatLeadsNowhereIsRemoved() async throws {
        let installed = try await Installed()
        try installed.uninstall()
        let folder = try Directory.open(installed.folder)
        let name: FilePath.Component = "net.example.wallpaper.json"
        try folder.createLink(FilePath(name), to: "/nowhere")
        let list = try await installed.run("app", "list")
        #expect(list.output.contains("net.example.wallpaper"))
        let removed = try await installed.run("app", "unregister", "net.example.wallpaper")
        #expect(removed.status == 0, "\(removed)")
        #expect(try folder.status(FilePath(name)) == nil)
    }

    @Test func aDirectoryWithTheNameOfARegistrationIsNamed() async throws {
        let installed = try await Installed()
        try installed.uninstall()
        let folder = try Directory.open(installed.folder)
        let name: FilePath.Component = "net.example.wallpaper.json"
        _ = try folder.makeDirectory(FilePath(name))
        let directory = installed.world.directory
        try directory.write(installed.registration.json(), to: name, durably: false)
        let path = directory.path.appending(name).string
        for command in [["register", path], ["unregister", "net.example.wallpaper"]] {
            let ending = try await installed.world.program.run(["app"] + command)
            #expect(ending.status == 41, "\(ending)")
            #expect(ending.error.contains("\nhint: move away '"), "\(ending)")
            let end = "/apps.d/\(name)', which is a directory\n"
            #expect(ending.error.hasSuffix(end), "\(ending)")
        }
        #expect(try folder.entries().map(\.name) == [name])
    }

    /// A change removes the temporary files of processes that were killed, and keeps those that may be in use.
    @Test func temporaryFilesOfAKilledRegistrationAreRemoved() async throws {
        let installed = try await Installed()
        let folder = try Directory.open(installed.folder)
        let left: FilePath.Component = ".net.example.wallpaper.json.0x9y0x9y0x9y.tmp"
        let others: [FilePath.Component] = [
            ".net.example.other.json.0x9y0x9y0x9y.tmp", ".net.example.wallpaper.json.draft.tmp",
        ]
        func leave() throws {
            for name in [left] + others {
                try folder.file(updating: FilePath(name), exactly: .file)
                    .setModified(1_000_000_000)
            }
        }
        try leave()
        let copy: FilePath.Component = "net.example.wallpaper.json"
        let used = try TemporaryFile.make(for: copy, in: folder)
        let directory = installed.world.directory
        try directory.write(installed.registration.json(), to: copy, durably: false)
        let path = directory.path.appending(copy).string
        #expect(try await installed.run("app", "register", path).status == 0)
        let stays = Set(others + [used.name])
        #expect(Set(try folder.entries().map(\.name).filter(Directory.isTemporary)) == stays)
        try leave()
        #expect(try await installed.run("app", "unregister", "net.example.wallpaper").status == 0)
        #expect(Set(try folder.entries().map(\.name).filter(Directory.isTemporary)) == stays)
        _ = consume used
    }

    @Test func theVersionNamesTheLinkedLibraries() async throws {
        let ending = try await Program().run(["version"])
        #expect(ending.status == 0)
        let pattern =
            #/
            stagepack\ \d+\.\d+\.\d+(\ \(commit\ [0-9a-f]{40}\))?\n
            \ \ libarchive\ \d+\.\d+\.\d+\n\ \ libcurl\ \d+\.\d+\.\d+\n
            \ \ OpenSSL\ \d+\.\d+\.\d+\n\ \ zstd\ \d+\.\d+\.\d+\n
            /#
        #expect(ending.output.wholeMatch(of: pattern) != nil, "\(ending.output)")
    }

    @Test func packsAreCompletedFromTheContainerThatTheLineNames() async throws {
        let world = try await Self.world()
        let arguments = ["---completion", "info", "--", "positional@0", "0", "0"]
        let line = ["stagepack", "info", "--container", world.container.string, ""]
        let ending = try await world.program.run(arguments + line)
        #expect(ending.output.split(separator: "\n") == ["aurora", "on-demand"])
    }

    @Test func quietCommandsPrintTheirResultAndNoNotes() async throws {
        let both = try await Program().run(["version", "--quiet", "--verbose"])
        #expect(both.status == 64)
        let world = try await Self.world()
        let text = try await world.succeed("status", "--quiet")
        #expect(text.contains("aurora"))
    }

    @Test(arguments: [
        ("always", true), ("never", false), ("auto", false),
    ])
    func textIsColouredWhenAskedFor(choice: String, isColoured: Bool) async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        world.server.answer("/packs/aurora-1.tar.zst", with: .status(404))
        let ending = try await world.run("prefetch", "--attempts", "1", "--color", choice)
        #expect(ending.output.contains("\u{1B}[1;31m1 failed\u{1B}[0m") == isColoured)
        #expect(ending.error.contains("\u{1B}[1;31mstagepack: error:\u{1B}[0m") == isColoured)
        #expect((ending.output + ending.error).contains("\u{1B}") == isColoured)
    }
}
