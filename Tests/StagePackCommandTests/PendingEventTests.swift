import FoundationEssentials
import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Installations and updates that end early, and the periodic runs that complete them.
@Suite(.apart, .server, .directory, .mountNamespace)
struct PendingEventTests {
    private static let periodic = ["prefetch", "--all", "--event", "periodic", "--quiet"]
    private static let both: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]

    /// The run that is killed.
    struct Run: Sendable, CustomTestStringConvertible {
        /// `true` if a pack is staged before, so that the run is for an update.
        var isUpdate: Bool
        var options: [String]

        var testDescription: String { "\(isUpdate ? "update" : "fresh") \(options)" }
    }

    private static let runs = [
        Run(isUpdate: false, options: []),
        Run(isUpdate: false, options: ["--event", "install"]),
        Run(isUpdate: true, options: []),
        Run(isUpdate: true, options: ["--event", "update"]),
        Run(isUpdate: true, options: ["--essential"]),
    ]

    @Test(arguments: runs)
    func aPeriodicRunCompletesOneThatWasKilledAfterOneOfTwoPacks(run: Run) async throws {
        var installed = try await Installed()
        let base = try SamplePack.small(try PackID("base"), policy: .essential(Self.both))
        let first = try SamplePack.small(try PackID("first"), policy: .essential(Self.both))
        let second = try SamplePack.small(
            try PackID("second"),
            policy: run.options == ["--essential"] ? .essential(Self.both) : .prefetch(Self.both)
        )
        if run.isUpdate {
            try installed.world.publish(base)
            #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        }
        try installed.world.publish(base, first, second)
        let server = installed.world.server
        server.answer(second.path, with: .content(second.archive).stalled(after: 1000))
        let (world, container) = (installed.world, installed.container)
        let killed = try await world.program.run(["prefetch", "--all"] + run.options) {
            [installed] running in
            try await poll("nothing is staged") {
                try installed.staged() == ["base": 1, "first": 1]
                    && partSize(below: container.appending("downloads")) > 0
            }
            running.send(SIGKILL)
        }
        #expect(killed.status == Program.killed, "\(killed)")
        #expect(try installed.staged() == ["base": 1, "first": 1])

        server.answer(second.path, with: .content(second.archive))
        let timer = try await world.program.run(Self.periodic)
        #expect(timer == Program.Ending(status: 0, output: "", error: ""))
        #expect(try installed.staged() == ["base": 1, "first": 1, "second": 1])
        #expect(try installed.history()?.pending == [])
    }

    /// The manifest is larger than the remaining space for it and the history.
    @Test(arguments: [true, false])
    func aPeriodicRunCompletesOneThatFoundNoSpaceForTheManifest(isUpdate: Bool) async throws {
        var world = try World()
        let base = try SamplePack.small(try PackID("base"), policy: .essential(Self.both))
        let new = try SamplePack.small(try PackID("new"), policy: .essential(Self.both))
        let others = try (0..<100).map {
            try SamplePack.small(try PackID("on-demand-\($0)"), policy: .onDemand)
        }
        try world.publish(base)
        let before = Answer.content(try world.manifest(of: [base]))
        let all = [base, new] + others
        try world.publish(all)
        let after = Answer.content(try world.manifest(of: all))
        let server = world.server
        server.answer("/manifest.json", with: isUpdate ? [before, after] : [after])
        let script = """
            C='\(world.container)'; P='\(try Program.path)'
            resize() { mount -o "remount,size=$1" none "$C"; }
            mkdir -p "$C" && mount -t tmpfs -o size=64m none "$C" || exit 99
            event=install; size=20k
            if \(isUpdate); then
                $P prefetch --event install "$@" || exit 98
                event=update
                size=$(stat -f -c '%b %f' "$C" | awk '{ print ($1 - $2 + 2) * 4 "k" }')
            fi
            resize $size || exit 97
            $P prefetch --event $event "$@"; [ $? = 40 ] || exit 96
            resize 64m || exit 95
            $P prefetch --event periodic "$@" || exit 94
            ls "$C/packs"
            """
        world.program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh"]
        let ending = try await world.program.run(["--quiet"] + world.source)
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output == "base\nnew\n", "\(ending)")
    }

    @Test func anUpdateLeavesAnInstallationIncomplete() async throws {
        var installed = try await Installed()
        let late = try SamplePack.small(
            try PackID("late"),
            policy: .prefetch([.firstInstallation])
        )
        try installed.world.publish(try .small(.aurora), late)
        installed.world.server.answer(late.path, with: .status(404))
        let install = ["prefetch", "--all", "--event", "install", "--attempts", "1"]
        #expect(try await installed.world.program.run(install).status == 21)
        #expect(try installed.history()?.pending == [.install])
        let new = try SamplePack.small(try PackID("new"), policy: .prefetch([.subsequentUpdate]))
        try installed.world.publish(try .small(.aurora), late, new)
        installed.world.server.answer(late.path, with: .content(late.archive))
        #expect(try await installed.run("prefetch", "--all", "--event", "update").status == 0)
        #expect(try installed.staged() == ["aurora": 1, "new": 1])
        #expect(try installed.history()?.pending == [.install])
        #expect(try await installed.world.program.run(Self.periodic).status == 0)
        #expect(try installed.staged() == ["aurora": 1, "late": 1, "new": 1])
        #expect(try installed.history()?.pending == [])
    }

    /// A run with nothing to do writes the history once, at its end.
    @Test func eventsThatFailBothStayIncomplete() async throws {
        var installed = try await Installed()
        let packs = [
            try SamplePack.small(.aurora),
            try .small(try PackID("late"), policy: .prefetch([.firstInstallation])),
            try .small(try PackID("new"), policy: .prefetch([.subsequentUpdate])),
        ]
        try installed.world.publish(packs)
        for pack in packs[1...] { installed.world.server.answer(pack.path, with: .status(404)) }
        for event in ["install", "update"] {
            let options = ["prefetch", "--all", "--event", event, "--attempts", "1"]
            #expect(try await installed.world.program.run(options).status == 21)
        }
        #expect(try installed.history()?.pending == [.install, .update])
        let why = try await installed.run("why")
        #expect(why.output.contains("  not complete: 'install' and 'update'; "), "\(why)")
        for pack in packs[1...] {
            installed.world.server.answer(pack.path, with: .content(pack.archive))
        }
        #expect(try await installed.world.program.run(Self.periodic).status == 0)
        #expect(try installed.staged() == ["aurora": 1, "late": 1, "new": 1])
        #expect(try installed.history()?.pending == [])
    }

    /// A worker that continued the staging would determine another event once some packs are staged.
    @Test func theJobOfTheDaemonNamesTheEvent() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        let daemon = try installed.startTestDaemon()
        defer { daemon.stop() }
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        let bodies = daemon.requests.map { String(decoding: $0.body, as: UTF8.self) }
        let pattern = #/"event"\s*:\s*"install"/#
        #expect(bodies.contains { $0.contains(pattern) }, "\(bodies)")
    }

    /// The lock of the manifests is held for longer than a thread blocks for it.
    @Test func aRunWaitsForTheLockOfTheManifests() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        try installed.world.publish(try .small(.aurora, version: 2))
        let locks = try Directory.open(installed.container.appending("locks"))
        let file = try locks.file(updating: ".trust", exactly: .ownerReadWrite)
        let lock = HeldLock(try FileLock.attempt(file, mode: .exclusive))
        #expect(lock.isHeld)
        let start = ContinuousClock.now
        let ending = try await installed.world.program.run(["prefetch", "--all", "--quiet"]) { _ in
            try await poll { ContinuousClock.now - start > .seconds(8) }
            lock.end()
        }
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        #expect(try installed.staged() == ["aurora": 2])
    }
}

/// A lock that a test holds until it ends it.
private final class HeldLock: Sendable {
    private let lock: Mutex<FileLock?>

    init(_ lock: consuming FileLock?) { self.lock = Mutex(lock) }

    var isHeld: Bool { lock.withLock { $0 != nil } }

    func end() { lock.withLock { $0 = nil } }
}
