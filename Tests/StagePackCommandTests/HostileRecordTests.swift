import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Records of a container, and transfers, of a hostile user.
@Suite(.server, .directory)
struct HostileRecordTests {
    /// Escape sequences of C0 and C1, right-to-left text, and a line break, in JSON.
    private static let hostile =
        #"\u001b]0;P\u0007\u001b[31m\u009b32m\u007f\u202e\u2066\nok: forged\n"#

    /// Expects that a terminal prints the text literally, without a line that comes from a value.
    private func expectHarmless(
        _ text: String,
        at location: SourceLocation = #_sourceLocation
    ) {
        let unsafe = text.unicodeScalars.filter { $0.isUnsafeForDisplay && $0 != "\n" }
        #expect(unsafe.isEmpty, "\(text.debugDescription)", sourceLocation: location)
        #expect(!text.split(separator: "\n").contains { $0.hasPrefix("ok: forged") })
    }

    /// Replaces text in the records of a directory of the container.
    private func replace(
        _ pattern: Regex<Substring>,
        with text: String,
        below name: String,
        of world: World
    ) throws {
        let path = world.container.appending(FilePath(name).components)
        let directory = try Directory.open(path)
        var count = 0
        for entry in try directory.entries() where entry.path.string.hasSuffix(".json") {
            let bytes = try #require(try directory.bytes(of: entry.path, limit: 1 << 20))
            let old = String(decoding: bytes, as: UTF8.self)
            let new = old.replacing(pattern, with: text)
            if new != old { count += 1 }
            try directory.write(Array(new.utf8), to: entry.name, durably: false)
        }
        #expect(count > 0)
    }

    /// A container with a pack that is staged and one that failed.
    private func stagedWorld() async throws -> World {
        var world = try World()
        let packs = [try SamplePack.small(.aurora), try .small(try PackID("oceans"))]
        try world.publish(packs)
        world.server.answer(packs[1].path, with: .status(404))
        _ = try await world.run("prefetch", "--attempts", "1")
        return world
    }

    @Test func noRecordReachesTheTerminalAsItIs() async throws {
        let world = try await stagedWorld()
        let hostile = Self.hostile
        try replace(#/"source":"/#, with: "\"source\":\"\(hostile)", below: "history", of: world)
        try replace(#/"message":"/#, with: "\"message\":\"\(hostile)", below: "history", of: world)
        try replace(#/"url" : "/#, with: "\"url\" : \"\(hostile)", below: "manifest", of: world)
        for (command, shows) in [("status", true), ("why", true), ("doctor", true), ("ls", false)] {
            let arguments = [command, "--container", world.container.string]
            let ending = try await world.program.run(arguments)
            expectHarmless(ending.output + ending.error)
            #expect(ending.output.contains(#"\u{1b}]0;P\u{7}"#) == shows, "\(ending.output)")
            let json = try await world.program.run(arguments + ["--json"])
            expectHarmless(json.output)
            #expect(json.output.contains(#"\u009b32m\u007f\u202e\u2066"#) == shows)
        }
    }

    @Test func aManifestUnderTheNameOfAnotherApplicationIsDamaged() async throws {
        let world = try await stagedWorld()
        let manifests = try #require(try Directory.open(world.container).directory("manifest"))
        let record = try #require(
            try manifests.bytes(of: "net.example.wallpaper.json", limit: 1 << 20)
        )
        try manifests.write(record, to: "net.example.zzz.json", durably: false)
        let container = ["--container", world.container.string]
        let status = try await world.program.run(["status"] + container)
        #expect(status.status == 0, "\(status)")
        #expect(status.output.split(separator: "\n").count { $0.hasPrefix("aurora ") } == 1)
        let doctor = try await world.program.run(["doctor"] + container)
        let fault = "application: expected 'net.example.zzz', found 'net.example.wallpaper'"
        #expect(doctor.status == 3)
        #expect(doctor.output.contains(fault), "\(doctor.output)")
    }

    @Test func aManifestUnderAWrongNameIsNotUsed() async throws {
        let world = try await stagedWorld()
        let manifests = try #require(try Directory.open(world.container).directory("manifest"))
        let record = try #require(
            try manifests.bytes(of: "net.example.wallpaper.json", limit: 1 << 20)
        )
        let text = String(decoding: record, as: UTF8.self)
        let newer = text.replacing(#/revision\\" ?: ?1/#, with: "revision\\\":7")
        #expect(newer != text)
        try manifests.write(Array(newer.utf8), to: "net.example.aaa.json", durably: false)
        let plan = try await world.run("plan", "--offline")
        #expect(plan.output.contains("revision 1"), "\(plan)")
        #expect(!plan.output.contains("revision 7"))
    }

    /// A user can make any number of names for one file, which take no space.
    @Test func linksOfOneManifestTakeNoMoreMemoryThanOne() async throws {
        let world = try await stagedWorld()
        let manifests = world.container.appending("manifest")
        let directory = try Directory.open(manifests)
        let record = try #require(
            try directory.bytes(of: "net.example.wallpaper.json", limit: 1 << 20)
        )
        // Space before the text is part of the manifest, and not of the decoded document.
        let text = String(decoding: record, as: UTF8.self)
        let space = String(repeating: " ", count: 6 << 20)
        let large = text.replacing(#/"text" ?: ?"/#) { "\($0.output)\(space)" }
        #expect(large.utf8.count > 6 << 20)
        try directory.write(Array(large.utf8), to: "net.example.wallpaper.json", durably: false)
        let original = manifests.appending("net.example.wallpaper.json").string
        for number in 1...60 {
            let name = manifests.appending("net.example.z\(number).json").string
            #expect(unsafe link(original, name) == 0)
        }
        var program = world.program
        program.wrapper = [
            "/bin/sh", "-c", #"ulimit -d 300000; exec "$@""#, "sh", try Program.path.string,
        ]
        for (command, status) in [("status", Int32(0)), ("doctor", 3)] {
            let arguments = [command, "--container", world.container.string]
            let ending = try await program.run(arguments)
            #expect(ending.status == status, "\(command): \(ending.error)")
        }
    }

    @Test func manifestsBeyondTheLimitAreNotRead() async throws {
        let world = try await stagedWorld()
        let manifests = try #require(try Directory.open(world.container).directory("manifest"))
        for name in ["net.example.zza.json", "net.example.zzb.json"] {
            let path = manifests.path.appending(name).string
            try manifests.write([], to: try #require(FilePath.Component(name)), durably: false)
            #expect(unsafe truncate(path, 70 << 20) == 0)
        }
        let doctor = try await world.program.run(["doctor", "--container", world.container.string])
        #expect(doctor.status == 3)
        let finding =
            "zzb.json': is ignored: the manifests of a container are at most 134.2 MB together"
        #expect(doctor.output.contains(finding), "\(doctor.output)")
    }

    @Test func noTransferReachesTheTerminalAsItIs() async throws {
        var installed = try await Installed()
        let daemon = try installed.startTestDaemon()
        defer { daemon.stop() }
        let client = ControlClient(path: daemon.path)
        try await client.makeSession("s", configuration: SessionConfiguration())
        let hostile = "\u{1B}]0;P\u{7}\u{9B}X\u{202E}\nok: forged"
        var request = TransferRequest(token: "1", kind: .download, url: "http://a/\(hostile)")
        request.description = hostile
        _ = try await client.createTasks([request], in: "s")
        for arguments in [["tasks"], ["tasks", "--all"], ["pause", "--all"]] {
            let ending = try await installed.world.program.run(arguments)
            #expect(ending.status == 0, "\(ending)")
            expectHarmless(ending.output + ending.error)
            #expect(ending.output.contains(#"(\u{1b}]0;P\u{7}\u{9b}X\u{202e}\u{a}ok: forged)"#))
            expectHarmless(try await installed.world.program.run(arguments + ["--json"]).output)
        }
    }

    /// Numbers that would overflow in calculations count as damage.
    @Test(arguments: [Int64.max, 9_007_199_254_740_991, -1])
    func noNumberOfARecordEndsACommand(value: Int64) async throws {
        let world = try await stagedWorld()
        try replace(#/"failures":1/#, with: "\"failures\":\(value)", below: "history", of: world)
        try replace(#/"essential":[0-9]+/#, with: "\"essential\":1", below: "history", of: world)
        let failed = try await world.run("prefetch", "--attempts", "1", "--progress", "none")
        #expect(failed.status == 21, "\(failed)")
        try replace(#/"essential":1/#, with: "\"essential\":\(value)", below: "history", of: world)
        #expect(try await world.run("prefetch", "--attempts", "1").status == failed.status)
        let generations = world.container.appending("generations/aurora")
        let generation = try #require(try Directory.open(generations).entries().first?.name)
        let record = "generations/aurora/\(generation)"
        let members = ["installedSize", "archiveSize", "directoryCount", "fileCount", "stagedAt"]
        for member in members {
            let pattern = try Regex(#""\#(member)":-?[0-9]+"#, as: Substring.self)
            try replace(pattern, with: "\"\(member)\":\(value)", below: record, of: world)
        }
        for arguments in [["du"], ["gc", "--dry-run"], ["status"], ["ls"], ["doctor"], ["why"]] {
            let ending = try await world.program.run(
                arguments + ["--container", world.container.string]
            )
            // Status 41 means that a record is damaged.
            #expect([0, 3, 41].contains(ending.status), "\(arguments): \(ending)")
        }
    }
}
