import Foundation
import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Files that packs, applications and users share, and that none of them can spoil for the others.
@Suite(.server, .directory)
struct SharingTests {
    private let quiet = ["--quiet", "--progress", "none", "--attempts", "1"]

    @Test func twoPacksOfOneArchiveAreStagedWholeEach() async throws {
        var world = try World()
        let first = try SamplePack.large(try PackID("one"), version: 1, mebibytes: 8)
        var second = SamplePack(
            try PackID("two"),
            archive: first.archive,
            first.files
        )
        second.pack.archive?.url = "packs/other.tar.zst"
        try world.publish(first, second)
        // One process is slow and receives the right content; the other is fast, and its content is wrong from the middle on.
        var wrong = first.archive
        for index in wrong.indices where index > wrong.count / 3 { wrong[index] = 0x45 }
        world.server.answer(first.path, with: Answer.content(first.archive).slowed(to: 6 << 20))
        world.server.answer(second.path, with: .content(wrong))
        let ending = try await world.run("prefetch", "--attempts", "1")
        #expect(ending.status == 0 || ending.status == 22)
        for pack in [first, second] {
            if let staged = try world.staged(pack.pack.id) { #expect(staged == StagedFiles(first)) }
        }
        #expect(try world.staged(first.pack.id) != nil || world.staged(second.pack.id) != nil)
    }

    @Test func anArchiveOfTwoPacksIsDownloadedOnceAndTheRunSaysSo() async throws {
        var world = try World()
        let first = try SamplePack.large(try PackID("one"), version: 1, mebibytes: 8)
        let second = SamplePack(try PackID("two"), archive: first.archive, first.files)
        try world.publish(first, second)
        let ending = try await world.run("prefetch", "--progress", "lines")
        #expect(ending.status == 0)
        #expect(ending.error.contains("two: has the archive of 'one', which is fetched once\n"))
        #expect(!ending.error.contains("another process"))
        let sent = world.server.requests(for: first.path) + world.server.requests(for: second.path)
        #expect(sent.count == 1)
        for pack in [first, second] {
            #expect(try world.staged(pack.pack.id) == StagedFiles(first))
        }
        #expect(try world.names(in: "downloads") == [])
    }

    @Test(arguments: [false, true])
    func applicationsOfAGroupDoNotReplaceEachOthersNewerVersion(untilMoved: Bool) async throws {
        let installed = try await Installed()
        let server = installed.world.server
        try installed.uninstall()
        let id = try PackID("common")
        for (name, version) in [("net.example.first", 1), ("net.example.second", 2)] {
            var registration = installed.registration
            registration.application = try ApplicationID(name)
            registration.manifestURLs = [server.url("/\(name).json")]
            try installed.write(registration.json(), to: "\(name).json")
            let pack = try SamplePack.small(id, version: version)
            let manifest = Manifest(
                application: registration.application,
                revision: 1,
                packs: [pack.pack]
            )
            server.answer("/\(name).json", with: .content(manifest.json()))
            server.answer(pack.path, with: .content(pack.archive))
        }
        // At first, neither application's manifest is known to the other's run.
        let run = ["prefetch", "--all", "--event", "periodic"]
        for _ in 0..<2 { #expect(try await installed.world.program.run(run).status == 0) }
        // An unreadable record of a third application has no effect.
        let records = try Directory.open(installed.container.appending("manifest"))
        try records.write([], to: "net.example.third.json", durably: false)
        for _ in 0..<2 {
            let ending = try await installed.world.program.run(run)
            #expect(ending.status == 0 && !ending.output.contains("1 staged"), "\(ending)")
            #expect(try installed.staged() == ["common": 2])
        }
        let first = "net.example.first"
        let named = try await installed.run("fetch", "common", "--app", first)
        #expect(named.status == 0 && named.output.contains("0 staged, 1 up to date"), "\(named)")
        let plan = try await installed.run("plan", "--app", first)
        #expect(plan.output.contains("version 2 of 'net.example.second' is staged"), "\(plan)")
        #expect(try await !installed.run("status").output.contains("outdated"))
        // The version that no registered application of the group offers any longer is replaced.
        if untilMoved {
            var moved = installed.registration
            moved.application = try ApplicationID("net.example.second")
            moved.group = try ApplicationGroupID("net.example.moved")
            moved.manifestURLs = [server.url("/net.example.second.json")]
            try installed.write(moved.json(), to: "net.example.second.json")
        } else {
            try Directory.open(installed.folder).remove("net.example.second.json")
        }
        #expect(try await installed.run("status").output.contains("outdated"))
        #expect(try await installed.world.program.run(run).status == 0)
        #expect(try installed.staged() == ["common": 1])
    }

    @Test func applicationsOfAGroupThatOfferOtherContentUnderOneVersionAreNamed() async throws {
        let installed = try await Installed()
        let server = installed.world.server
        try installed.uninstall()
        for name in ["first", "second"] {
            var registration = installed.registration
            registration.application = try ApplicationID("net.example.\(name)")
            registration.manifestURLs = [server.url("/\(name).json")]
            try installed.write(registration.json(), to: "\(registration.application).json")
            let packs = try ["common", "other"].map { id in
                var pack = try SamplePack(
                    try PackID(id),
                    [.init("readme.txt", content: Array("\(name) \(id)\n".utf8))]
                )
                pack.pack.archive?.url = "packs/\(name)-\(id).tar.zst"
                server.answer(pack.path, with: .content(pack.archive))
                return pack.pack
            }
            let manifest = Manifest(
                application: registration.application,
                revision: 1,
                packs: packs
            )
            server.answer("/\(name).json", with: .content(manifest.json()))
        }
        let conflict =
            "'net.example.first' and 'net.example.second' offer version 1 of pack 'common' with "
            + "different content; the same for 1 other pack"
        let hint =
            "ask one of their publishers to give the pack another id or version number"
        let told = "stagepack: warning: \(conflict)\nhint: \(hint)\n"
        let all = try await installed.run("prefetch", "--all", "--quiet")
        #expect(all == Program.Ending(status: 0, output: "", error: told))
        let plan = try await installed.run("plan", "--app", "net.example.second")
        #expect(plan.status == 0 && plan.error.contains(told), "\(plan)")
        for options in [[], ["--app", "net.example.first"]] {
            let status = try await installed.world.program.run(["status"] + options)
            #expect(status.status == 0 && status.error == told, "\(status)")
            let doctor = try await installed.world.program.run(["doctor"] + options)
            let finding = "problem: packs: \(conflict)\n  hint: \(hint)\n"
            #expect(doctor.output.contains(finding), "\(doctor)")
        }
        // The manifest of an unregistered application does not affect runs.
        try Directory.open(installed.folder).remove("net.example.second.json")
        #expect(try await installed.run("status").error == "")
    }

    @Test func packsOfSeveralApplicationsAreDistinguished() async throws {
        var world = try World()
        try world.publish(.small(try PackID("one")))
        try await world.succeed("prefetch", "--quiet")
        #expect(try await !world.succeed("status").contains("application"))
        let other = Manifest(
            application: try ApplicationID("net.example.zebra"),
            revision: 1,
            packs: [try SamplePack.small(try PackID("two"), policy: .onDemand).pack]
        )
        world.server.answer("/other.json", with: .content(other.json()))
        let source = world.source(manifest: world.server.url("/other.json"))
        #expect(try await world.program.run(["prefetch", "--quiet"] + source).status == 0)
        let status = try await world.program.run(["status", "--container", world.container.string])
        let rows = status.output.split(separator: "\n").map { $0.split(separator: " ").prefix(2) }
        #expect(rows.contains(["pack", "application"]), "\(status)")
        #expect(rows.contains(["one", "net.example.wallpaper"]))
        #expect(rows.contains(["two", "net.example.zebra"]))
    }

    @Test func prioritiesOfAnySizeAreOrdered() async throws {
        var world = try World()
        var packs = try ["lowest", "highest", "usual"].map { try SamplePack.small(try PackID($0)) }
        packs[0].pack.priority = .min
        packs[1].pack.priority = .max
        try world.publish(packs)
        let plan = try await world.run("plan", "--json")
        #expect(plan.status == 0)
        let order = plan.output.matches(of: #/"id" : "(\w+)"/#).map { String($0.output.1) }
        #expect(order == ["highest", "usual", "lowest"])
    }

    @Test func aManifestAsLargeAsItMayBeIsReadAgain() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        world.revision = 1
        let padding = [UInt8](repeating: 0x0A, count: 9 << 20)
        let manifest = try world.manifest(of: [pack]) + padding
        world.server.answer("/manifest.json", with: .content(manifest))
        #expect(try await world.run("prefetch").status == 0)
        #expect(try await world.run("prefetch").status == 0)
        #expect(try await world.run("gc").status == 64 || world.names(in: "packs") == ["aurora"])
    }

    @Test func recordsThatAPowerCutEmptiedAreRecreated() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        try await world.succeed("prefetch")
        for name in ["manifest", "history"] {
            let directory = try Directory.open(world.container.appending(name))
            try directory.write([], to: "net.example.wallpaper.json", durably: false)
        }
        try world.publish(try SamplePack.small(.aurora, version: 2))
        try await world.succeed("prefetch")
        #expect(try world.staged(.aurora) == StagedFiles(try SamplePack.small(.aurora, version: 2)))
    }

    @Test(.apart, arguments: [".history", "aurora"])
    func aHeldLockDoesNotDelayAHook(name: String) async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        let container = try Container.make(world.container)
        let locks = try Directory.open(world.container.appending("locks"))
        let file = try locks.file(updating: FilePath(name))
        let lock = try FileLock.attempt(file, mode: .exclusive)
        let arguments = ["prefetch", "--hook"] + world.source
        let ending = try await world.program.run(arguments, deadline: 4) { _ in
            try name == "aurora" || container.reader.currentGeneration(of: .aurora) != nil
        }
        // The command returned although the lock is still held.
        _ = consume lock
        #expect(ending.status == 0)
        let isStaged = try container.reader.currentGeneration(of: .aurora) != nil
        #expect(isStaged == (name == ".history"))
        if isStaged { #expect(try locks.status("aurora")?.mode == 0o600) }
    }

    @Test func aCollectionLeavesTheDownloadsOfOtherApplications() async throws {
        var world = try World()
        let pack = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        try world.publish(pack)
        let broken = Answer.content(pack.archive).cut(after: 4 << 20)
        world.server.answer(pack.path, with: broken, broken)
        #expect(try await world.run("prefetch", "--attempts", "1", "--quiet").status != 0)
        let before = try world.names(in: "downloads")
        #expect(before.contains { $0.contains(".part.") })
        // Another application of the group.
        let other = Manifest(
            application: try ApplicationID("net.example.other"),
            revision: 1,
            packs: []
        )
        world.server.answer("/other.json", with: .content(other.json()))
        let url = world.server.url("/other.json")
        let source = world.source(manifest: url)
        #expect(try await world.program.run(["prefetch", "--quiet"] + source).status == 0)
        #expect(try await world.program.run(["gc"] + source).status == 0)
        #expect(try world.names(in: "downloads") == before)
    }

    /// Every member that names an object.
    @Test(arguments: [
        "archive", "index", "index.fileTableDelta", "index.deltas[0]", "index.deltas[0].patch",
        "index.deltas[0].patch.indexDelta",
    ])
    func aManifestOfTheNetworkNamesNoLocalFiles(member: String) async throws {
        var world = try World()
        var pack = try SamplePack.small(.aurora)
        let digest = pack.pack.contentDigest
        let size = ByteCount(1000)
        if member != "archive" {
            var index = PackIndex(
                url: "i/1",
                size: size,
                digest: digest,
                contentSize: size,
                contentDigest: digest,
                bundleSize: size
            )
            index.fileTableDelta = PackIndex.CompanionDelta(url: "i/2", size: size, digest: digest)
            index.deltas = [PackIndex.Delta(base: digest, url: "i/3", size: size, digest: digest)]
            index.deltas[0].patch = PackIndex.Patch(
                url: "p/1",
                size: size,
                digest: digest,
                windowSize: size,
                prefixSize: size,
                indexDelta: PackIndex.CompanionDelta(url: "i/4", size: size, digest: digest)
            )
            pack.pack.index = index
        }
        let local = "file:///etc/hostname"
        switch member {
        case "archive": pack.pack.archive?.url = local
        case "index": pack.pack.index?.url = local
        case "index.fileTableDelta": pack.pack.index?.fileTableDelta?.url = local
        case "index.deltas[0]": pack.pack.index?.deltas[0].url = local
        case "index.deltas[0].patch": pack.pack.index?.deltas[0].patch?.url = local
        default: pack.pack.index?.deltas[0].patch?.indexDelta?.url = local
        }
        #expect(pack.pack.objects.first { $0.url == local }?.member == member)
        try world.publish(pack)
        let ending = try await world.program.run(["prefetch"] + quiet + world.source)
        #expect(ending.status == 12)
        #expect(ending.error.contains("it came over the network and names the local file"))
    }

    @Test func aFifoIsNoArchive() async throws {
        let world = try World()
        var pack = try SamplePack.small(.aurora)
        let path = world.directory.path.appending("fifo").string
        #expect(unsafe mkfifo(path, 0o600) == 0)
        pack.pack.archive?.url = "file://\(path)"
        try world.directory.write(try world.manifest(of: [pack]), to: "m.json", durably: false)
        let manifest = "file://\(world.directory.path.appending("m.json"))"
        let ending = try await world.program.run(
            ["prefetch"] + quiet + world.source(manifest: manifest)
        )
        #expect(ending.status != 0)
        #expect(try world.staged(.aurora) == nil)
    }

    @Test func aStoredManifestForOtherApplicationVersionsIsNotUsed() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        world.server.answer(
            "/manifest.json",
            with: .content(
                Manifest(
                    application: try ApplicationID("net.example.wallpaper"),
                    revision: 1,
                    applicationVersion: try VersionRequirement("<3"),
                    packs: [try SamplePack.small(.aurora).pack]
                ).json()
            )
        )
        try await world.succeed("prefetch", "--application-version", "2.0")
        world.server.answer("/manifest.json", with: .status(404))
        let ending = try await world.run("prefetch", "--application-version", "3.0")
        #expect(ending.status == 12)
    }

    @Test func aRevisionDoesNotGoBackFromAnotherURL() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        world.revision = 9
        try world.publish(pack)
        try await world.succeed("prefetch")
        world.revision = 1
        let old = try world.manifest(of: [pack])
        world.server.answer("/old.json", with: .content(old))
        let source = world.source(manifest: world.server.url("/old.json"))
        let ending = try await world.program.run(["prefetch"] + quiet + source)
        #expect(ending.status == 12)
        #expect(ending.error.contains("it went back from revision 9 to revision 1"))
    }

    @Test func aManifestThatIsNotUTF8IsRefusedAndNotMended() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        var manifest = try world.manifest(of: [pack])
        let index = try #require(manifest.firstIndex(of: UInt8(ascii: "-")))
        manifest[index] = 0xFF
        world.server.answer("/manifest.json", with: .content(manifest))
        let ending = try await world.program.run(["prefetch"] + quiet + world.source)
        #expect(ending.status == 11)
        #expect(ending.error.contains("expected UTF-8"))
    }

    @Test(
        arguments: [
            ["fetch", "aurora", "--deadline", "nan"], ["load", "aurora", "--deadline", "inf"],
            ["prefetch", "--deadline", "-1"], ["prefetch", "--connect-timeout", "1e300"],
        ]
    )
    func timesThatAreNoneAreRefused(arguments: [String]) async throws {
        let world = try World()
        #expect(try await world.program.run(arguments + world.source).status == 64)
    }

    @Test func aContainerWithoutANameIsNoContainer() async throws {
        let arguments = ["prefetch", "--manifest", "http://127.0.0.1:9/m.json", "--container", ""]
        #expect(try await Program().run(arguments).status == 64)
    }

    @Test func outputThatCannotBeWrittenIsAnError() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        try await world.succeed("prefetch")
        world.program.wrapper = [
            "/bin/sh", "-c", #"exec "$@" >/dev/full"#, "sh", try Program.path.string,
        ]
        let ending = try await world.run("path", "aurora")
        #expect(ending.status == 74)
        #expect(ending.error.contains("cannot write standard output: No space left on device"))
    }
}
