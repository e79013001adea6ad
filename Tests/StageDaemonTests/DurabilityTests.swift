import FoundationEssentials
import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Every change is durable before the daemon responds to the request.
@Suite(.directory, .daemon, .server, .tracing)
struct DurabilityTests {
    private let daemon: DaemonProcess
    private let trace: FilePath

    init() async throws {
        daemon = try .required()
        trace = daemon.directory.appending("trace")
        try daemon.configure(#"{"settlingTime": 0}"#)
        let calls = ["-e", "trace=fdatasync,fsync", "-e", "signal=none", "-y"]
        try await daemon.start(
            by: ["/usr/bin/strace", "-f", "-qq", "-o", trace.string] + calls
        )
    }

    /// Number of syncs of the journal's log so far.
    private func synchronizations() throws -> Int {
        try text(of: trace).split(separator: "\n").filter {
            $0.contains("journal.sqlite-wal") && $0.hasSuffix("= 0")
        }.count
    }

    private func expectSynchronized(_ change: () async throws -> Void) async throws {
        let before = try synchronizations()
        try await change()
        try await poll("it was answered and is not on disk") { try synchronizations() > before }
    }

    @Test func eachAnswerComesAfterItsChangeIsOnDisk() async throws {
        try await expectSynchronized { try await daemon.makeSession() }
        for token in ["1", "2", "3"] {
            try await expectSynchronized {
                try await daemon.download("http://127.0.0.1:1/", token: token) {
                    $0.isSuspended = true
                }
            }
        }
        try await expectSynchronized {
            var change = TransferChange()
            change.priority = 0.9
            try await daemon.client.change(1, by: change)
        }
        try await expectSynchronized {
            try await daemon.change(2, to: .cancelled)
        }
        try await expectSynchronized {
            try await daemon.client.acknowledge(Acknowledgement(sequence: 1), in: "s")
        }
        try await expectSynchronized { try await daemon.client.removeSession("s") }
    }
}

/// Journals with rows that a disk has damaged.
@Suite(.directory, .daemon, .server)
struct DamagedRowTests {
    private let server = TestServer.current

    @Test func aDamagedRowIsTheLossOfItsTaskAlone() async throws {
        let daemon = try DaemonProcess.required()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 0.05}"#)
        try await daemon.start()
        try await daemon.makeSession()
        try await daemon.makeSession("t") { $0.headers = ["A": "b"] }
        server.answer("/a", with: .content(noise(1000)))
        let bad = try await daemon.download(server.url("/a"), token: "bad") {
            $0.isSuspended = true
        }
        let good = try await daemon.download(server.url("/a"), token: "good") {
            $0.isSuspended = true
        }
        let ended = try await daemon.download(server.url("/a"), token: "ended")
        try await daemon.wait(for: .completed, of: ended)
        try await daemon.kill()
        let script = """
            import sqlite3, sys
            journal = sqlite3.connect(sys.argv[1])
            journal.execute("UPDATE task SET request = x'00ff' WHERE token = 'bad'")
            journal.execute("UPDATE event SET body = x'7b22'")
            journal.execute("UPDATE session SET configuration = x'00', relaunch = x'00' WHERE identifier = 't'")
            journal.commit()
            """
        let journal = daemon.state.appending("journal.sqlite").string
        _ = try await Peer(daemon).run(
            as: geteuid(),
            getegid(),
            ["/usr/bin/python3", "-c", script, journal]
        )
        try await daemon.start()
        #expect(try await daemon.client.sessions().map(\.identifier) == ["s", "t"])
        #expect(try await daemon.client.tasks().map(\.id) == [bad, good, ended])
        for task in [bad, good] {
            try await daemon.change(task, to: .running)
        }
        let events = try await daemon.outcomes()
        let kinds = Dictionary(uniqueKeysWithValues: events.map { ($0.task ?? 0, $0.kind) })
        #expect(kinds == [bad: .failed, good: .completed, ended: .failed])
        let failures = events.filter { $0.kind == .failed }.map(\.failure?.kind)
        #expect(failures == [.lost, .lost])
    }
}

/// A disk that is full when the daemon starts.
@Suite(.directory, .daemon, .server, .mountedFileSystems)
struct FullDiskStartTests {
    /// Commands that mount a small file system at `$0`, the last one by an image beside it.
    static let disks = [
        "mount -t tmpfs -o size=4m none \"$0\"",
        """
        truncate -s 16m "$0.image" && mkfs.ext4 -q -F -m 0 "$0.image" && mount -o loop "$0.image" "$0"
        """,
    ]

    @Test(arguments: disks) func theDaemonStartsOnAFullDisk(_ mount: String) async throws {
        let daemon = try DaemonProcess.required()
        let peer = try Peer(daemon)
        try Directory.open(daemon.directory).createDirectory("state")
        let state = daemon.state.string
        let path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin; "
        _ = try await peer.run(as: 0, 0, ["/bin/sh", "-c", path + mount, state])
        do {
            try await fill(daemon, peer)
        } catch {
            daemon.abandon()
            _ = try await peer.run(as: 0, 0, ["/bin/umount", "--lazy", state])
            throw error
        }
        daemon.abandon()
        _ = try await peer.run(as: 0, 0, ["/bin/umount", "--lazy", state])
    }

    private func fill(_ daemon: DaemonProcess, _ peer: Peer) async throws {
        let server = TestServer.current
        server.answer("/a", with: .content(noise(1000)))
        // The daemon does not see the handler's end, so the next start has to write to the journal.
        try daemon.configure(#"{"settlingTime": 0, "reserve": 0, "retryBase": 0.05}"#)
        try await daemon.start()
        try await daemon.makeSession { $0.handler = peer.handler("hold") }
        try await daemon.download(server.url("/a"))
        try await peer.wait(for: "held")
        try await daemon.kill()
        let fill = [
            "/bin/sh", "-c", "! cat /dev/zero > $0; sync -f $0",
            daemon.state.appending("full").string,
        ]
        _ = try await peer.run(as: 0, 0, fill)
        try await daemon.start()
        #expect(try await daemon.client.sessions().map(\.identifier) == ["s"])
        _ = try await peer.run(as: 0, 0, ["/bin/rm", daemon.state.appending("full").string])
        try await poll("it does not work again") {
            (try? await daemon.client.makeSession("t", configuration: .init())) != nil
        }
    }
}

/// Several changes of one task in quick succession.
@Suite(.directory, .daemon)
struct ConcurrentChangeTests {
    @Test func noneOfThemIsUndoneByAnother() async throws {
        let daemon = try DaemonProcess.required()
        try daemon.configure(#"{"settlingTime": 0}"#)
        try await daemon.start()
        try await daemon.makeSession()
        var tasks: [Int64] = []
        for token in 1...30 {
            tasks.append(
                try await daemon.download("http://127.0.0.1:1/", token: "\(token)") {
                    $0.earliestBegin = .now + 3600
                }
            )
        }
        for task in tasks {
            try await withThrowingTaskGroup { group in
                for index in 0..<4 {
                    group.addTask {
                        var change = TransferChange()
                        switch index {
                        case 0: change.state = .suspended
                        case 1: change.state = .paused
                        case 2: change.description = "described"
                        default: change.priority = 0.9
                        }
                        try await daemon.client.change(task, by: change)
                    }
                }
                try await group.waitForAll()
            }
        }
        try await daemon.kill()
        try await daemon.start()
        for task in try await daemon.client.tasks(in: "s") {
            #expect(task.request.description == "described")
            #expect(task.request.priority == 0.9)
            let reasons: [PendingReason.Kind] = [.pausedByClient, .pausedByUser, .earliestBegin]
            #expect(task.pendingReasons.map(\.kind) == reasons)
        }
    }
}
