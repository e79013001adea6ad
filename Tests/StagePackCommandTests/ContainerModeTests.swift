import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The permission bits below a container, for any umask of the process that created it.
@Suite(.server, .directory)
struct ContainerModeTests {
    /// Runs the program with a umask.
    private func run(_ world: World, umask: String, _ arguments: String...) async throws {
        var program = world.program
        program.wrapper = [
            "/bin/sh", "-c", #"umask "$0"; exec "$@""#, umask, try Program.path.string,
        ]
        let ending = try await program.run(arguments + world.source)
        #expect(ending.status == 0, "\(ending.error)")
    }

    /// The modes of everything below the container, with stars for digests and marks.
    private func modes(_ world: World) throws -> [String: String] {
        var modes: [String: String] = [:]
        try walk(try Directory.open(world.container), "", &modes)
        return modes
    }

    private func walk(
        _ directory: Directory,
        _ prefix: String,
        _ modes: inout [String: String]
    ) throws {
        for entry in try directory.entries() {
            let name = prefix + entry.path.string
            let status = try #require(try directory.status(entry.path))
            if status.kind == .link { continue }
            modes[name.replacing(#/[0-9a-f]{64}/#) { _ in "*" }] = String(status.mode, radix: 8)
            guard entry.kind == .directory else { continue }
            let below = try #require(try directory.directory(entry.path))
            try walk(below, name + "/", &modes)
        }
    }

    /// The modes in a container after two packs were staged, one of them indexed, and one file was fetched.
    private static let expected: [String: String] = [
        "container.json": "644", "packs": "755", "generations": "755", "staging": "755",
        "downloads": "755", "locks": "755", "manifest": "755", "history": "755", "files": "755",
        "pins": "755", "pins/aurora.json": "644", "manifest/net.example.wallpaper.json": "644",
        "history/net.example.wallpaper.json": "644", "locks/.staging": "600",
        "locks/.spare": "600",
        "locks/.history": "600", "locks/.trust": "600", "locks/aurora": "600",
        "locks/levels": "600",
        "files/*": "755", "files/*/lease": "644", "files/*/index": "644",
        "files/*/content": "755", "files/*/content/d": "755", "files/*/content/d/b": "644",
        "generations/aurora": "755", "generations/aurora/1-*": "755",
        "generations/aurora/1-*/lease": "644", "generations/aurora/1-*/pack.json": "644",
        "generations/aurora/1-*/files": "644", "generations/aurora/1-*/content": "755",
        "generations/aurora/1-*/content/readme.txt": "644",
        "generations/aurora/1-*/content/bin": "755",
        "generations/aurora/1-*/content/bin/tool": "755",
        "generations/aurora/1-*/content/images": "755",
        "generations/aurora/1-*/content/images/one.png": "644",
        "generations/levels": "755", "generations/levels/2-*": "755",
        "generations/levels/2-*/lease": "644", "generations/levels/2-*/pack.json": "644",
        "generations/levels/2-*/files": "644", "generations/levels/2-*/index": "644",
        "generations/levels/2-*/content": "755", "generations/levels/2-*/content/a": "644",
        "generations/levels/2-*/content/d": "755", "generations/levels/2-*/content/d/b": "644",
        "generations/levels/2-*/content/empty": "644",
    ]

    @Test(arguments: ["000", "027", "077"])
    func theUmaskChangesNothingBelowAContainer(umask: String) async throws {
        var world = try World()
        try world.publish(try SamplePack.small(try .aurora))
        try await run(world, umask: umask, "prefetch", "--quiet")
        try await run(world, umask: umask, "pin", "aurora")
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(300_000, seed: 1), "d/b": [1, 2, 3], "empty": []])
        _ = try await publisher.package(version: 2)
        try await run(world, umask: umask, "load", "levels", "--file", "d/b")
        try await run(world, umask: umask, "fetch", "levels", "--quiet")

        #expect(try modes(world) == Self.expected)
        try await world.succeed("verify")
        try await world.succeed("doctor")
        let mode = try #require(try world.directory.status("container")).mode
        let isRoot = geteuid() == 0
        #expect(mode == (isRoot ? 0o755 : 0o755 & ~(try #require(UInt32(umask, radix: 8)))))
    }

    @Test func onlyTheOwnerCanReadUnverifiedDownloads() async throws {
        var world = try World()
        let pack = try SamplePack.large(try .aurora, version: 1, mebibytes: 8)
        try world.publish(pack)
        world.server.answer(pack.path, with: Answer.content(pack.archive).stalled(after: 2 << 20))
        world.program.wrapper = [
            "/bin/sh", "-c", #"umask 000; exec "$@""#, "sh", try Program.path.string,
        ]
        let downloads = world.container.appending("downloads")
        let ending = try await world.run("prefetch") { running in
            try await poll { partSize(below: downloads) > 1 << 20 }
            running.send(SIGINT)
        }
        #expect(ending.status != 0)
        let directory = try Directory.open(downloads)
        let modes = try directory.entries().map { entry in
            try directory.status(entry.path)?.mode
        }
        #expect(modes.count >= 2 && modes.allSatisfy { $0 == 0o600 }, "\(modes)")
    }

    @Test(.severalUsers)
    func anotherUserReadsWhatRootStagedUnderAPrivateUmask() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(try .aurora))
        try await run(world, umask: "077", "prefetch", "--quiet")
        try world.publish(try SamplePack.small(try .aurora, version: 2))
        try await run(world, umask: "077", "prefetch", "--quiet")
        var program = world.program
        program.wrapper = Stranger.command + [try Program.path.string]
        let path = try await program.run(["path", "aurora", "--container", world.container.string])
        #expect(path.status == 0, "\(path)")
        program.wrapper = Stranger.command + ["/bin/cat"]
        let file = String(path.output.dropLast()) + "/readme.txt"
        let read = try await program.run([file])
        #expect(read == Program.Ending(status: 0, output: "aurora 2\n", error: ""))
        program.wrapper = Stranger.command + [try Program.path.string]
        let verified = try await program.run(["verify", "--container", world.container.string])
        #expect(verified.output == "aurora: as it was staged\n", "\(verified.error)")
    }

    @Test func verifyComparesTheModesOfFilesAndDirectories() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(try .aurora))
        try await world.succeed("prefetch", "--quiet")
        let content = try await world.succeed("path", "aurora").dropLast()
        for (path, mode) in [
            ("", 0o700), ("/images", 0o700), ("/bin/tool", 0o644), ("/readme.txt", 0o600),
            ("/../lease", 0o600), ("/../pack.json", 0o640), ("/..", 0o711),
        ] {
            try setMode(of: content + path, mode)
        }
        let ending = try await world.run("verify")
        #expect(ending.status == 3)
        let generation = try #require(FilePath(String(content)).resolved)
            .removingLastComponent().lastComponent
        let name = try #require(generation).string
        #expect(
            ending.output.split(separator: "\n") == [
                "aurora: mode 700, expected 755: .", "aurora: mode 644, expected 755: bin/tool",
                "aurora: mode 700, expected 755: images",
                "aurora: mode 600, expected 644: readme.txt",
                "aurora: mode 711, expected 755: '\(name)' of the generation",
                "aurora: mode 640, expected 644: 'pack.json' of the generation",
                "aurora: mode 600, expected 644: 'lease' of the generation",
            ]
        )
        let json = try await world.run("verify", "--json").output
        #expect(json.contains(#""kind" : "mode""#) && !json.contains(#""changed""#), "\(json)")
        #expect(json.contains(#""mode" : "640""#) && json.contains(#""expectedMode" : "644""#))
        try await world.succeed("repair", "--quiet")
        try await world.succeed("verify")
    }

    @Test(arguments: [
        ("packs", 0o700), ("generations", 0o750), ("generations/aurora", 0o700),
        ("manifest", 0o700), ("container.json", 0o600), ("locks/aurora", 0o644),
        ("locks/.staging", 0o666), ("manifest/net.example.wallpaper.json", 0o600),
        ("staging", 0o777), ("", 0o777),
    ])
    func doctorReportsAModeAndItsRemedy(name: String, mode: Int) async throws {
        var world = try World()
        try world.publish(try SamplePack.small(try .aurora))
        try await world.succeed("prefetch", "--quiet")
        let path = name.isEmpty ? world.container.string : "\(world.container)/\(name)"
        let before = try #require(try File.mode(of: path))
        try setMode(of: path, mode)
        let ending = try await world.run("doctor")
        #expect(ending.status == 3)
        let expected = "problem: '\(path)': has mode \(String(mode, radix: 8)), expected "
        let line = ending.output.split(separator: "\n").first { $0.hasPrefix(expected) }
        #expect(line != nil, "\(ending.output)")
        let hint = ending.output.split(separator: "\n").compactMap {
            $0.firstMatch(of: #/hint: run "(chmod .*)"/#)?.1
        }
        try #require(hint.count == 1, "\(ending.output)")
        unsafe #expect(system(String(hint[0])) == 0)
        #expect(try File.mode(of: path) == before || name.isEmpty)
        try await world.succeed("doctor")
    }

    @Test(.root("giving files away takes root"))
    func doctorReportsOwners() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(try .aurora))
        try await world.succeed("prefetch", "--quiet")
        let path = "\(world.container)/staging"
        unsafe #expect(chown(path, 65534, 65534) == 0)
        let ending = try await world.run("doctor")
        #expect(ending.status == 3)
        #expect(ending.output.contains("'\(path)': belongs to user 65534, expected user 0"))
    }
}

/// Sets the permission bits at a path.
private func setMode(of path: some StringProtocol, _ mode: Int) throws {
    unsafe #expect(chmod(String(path), mode_t(mode)) == 0)
}

extension File {
    /// The permission bits at a path.
    fileprivate static func mode(of path: String) throws -> UInt32? {
        let path = FilePath(path)
        let name = try #require(path.lastComponent)
        return try Directory.open(path.removingLastComponent()).status(FilePath(name))?.mode
    }
}
