import FoundationEssentials
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A daemon on an almost full disk: it serves requests or reports the reason, and keeps the tasks that it has accepted.
@Suite(.directory, .daemon, .server, .mountedFileSystems)
struct DaemonDiskLimitTests {
    private static let room = "size=64m,nr_inodes=4096"
    static let rests =
        [0, 1, 2, 4, 8, 10, 16, 20, 22, 24, 26, 32, 48].map { "size=\($0 == 0 ? 4 : 4 + $0 * 4)k" }
        + [2, 3, 4, 5, 6, 7, 8, 9, 10, 12].map { "size=64m,nr_inodes=\($0)" }

    /// Calls `body` with the state directory of the daemon, on a separate disk; `mount` mounts it again with other limits.
    private func withDisk(
        _ daemon: DaemonProcess,
        _ body: (_ limit: (String) async throws -> Void) async throws -> Void
    ) async throws {
        let peer = try Peer(daemon)
        let state = daemon.state.string
        try Directory.open(daemon.directory).createDirectory("state")
        let mount = ["/bin/mount", "-t", "tmpfs", "-o", Self.room, "none", state]
        _ = try await peer.run(as: 0, 0, mount)
        let result: Result<Void, any Error>
        do {
            try Directory.open(daemon.state).write(
                Array(repeating: 0, count: 4096),
                to: "page",
                durably: false
            )
            try await body { options in
                _ = try await peer.run(
                    as: 0,
                    0,
                    ["/bin/mount", "-o", "remount,\(options)", state]
                )
            }
            result = .success(())
        } catch {
            result = .failure(error)
        }
        daemon.abandon()
        _ = try await peer.run(as: 0, 0, ["/bin/umount", "--lazy", state])
        try result.get()
    }

    @Test func aTaskWhoseEndCannotBeRecordedWaitsForTheDisk() async throws {
        let daemon = try DaemonProcess.required()
        try daemon.configure(#"{"settlingTime": 0, "reserve": 0}"#)
        let gate = Gate()
        let server = TestServer.current
        server.answer("/gone", with: Answer.status(404).waiting(for: gate))
        try await withDisk(daemon) { _ in
            try await daemon.start()
            try await daemon.makeSession()
            let id = try await daemon.download(server.url("/gone"))
            let stream = try await daemon.attach()
            defer { stream.close() }
            // The current state, which is sent on attachment, is the first event.
            _ = try await stream.take { $0.task == id }
            try await poll("no request comes") { !server.requests(for: "/gone").isEmpty }
            let filler = daemon.state.appending("filler").string
            // dd fails when the disk is full.
            let fill = "/bin/dd if=/dev/zero of='\(filler)' || :"
            _ = try await Peer(daemon).run(as: 0, 0, ["/bin/sh", "-c", fill])
            gate.open()
            try await daemon.wait(for: [.disk], of: id)
            #expect(try await daemon.client.task(id).state == .waiting)
            _ = try await stream.take { $0.task == id && $0.pendingReasons?.map(\.kind) == [.disk] }
            stream.close()
            // A client that attaches meanwhile receives the state as well.
            _ = try await daemon.events {
                $0.task == id && $0.pendingReasons?.map(\.kind) == [.disk]
            }
            let full = "The disk is full, and all transfers wait"
            #expect(try daemon.said().contains(full))
            let metrics = try await daemon.client.metrics()
            let series = #"stagepack_daemon_waiting_tasks{reason="disk"} 1"#
            #expect(metrics.contains(series), "\(metrics)")
            _ = try Directory.open(daemon.state).remove("filler")
            try await daemon.wait(for: .failed, of: id)
            try await poll("the log does not say that transfers continue") {
                try daemon.said().contains("Transfers continue after they waited for the disk")
            }
        }
    }

    /// Returns whether the daemon responds; `false` once it has ended.
    private func answers(_ daemon: DaemonProcess) async throws -> Bool {
        try await pollForValue("it neither answers nor ends") {
            if (try? await daemon.client.status()) != nil { return true }
            return daemon.status == nil ? nil : false
        }
    }

    @Test(arguments: rests) func acceptedTasksSurviveAFullDisk(_ limit: String) async throws {
        let daemon = try DaemonProcess.required()
        try daemon.configure(#"{"settlingTime": 0, "reserve": 0}"#)
        try await withDisk(daemon) { remount in
            try await remount(limit)
            try daemon.launch()
            guard try await answers(daemon) else {
                #expect(try await daemon.end() == 74)
                let words = try daemon.said()
                #expect(words.hasPrefix("stagepackd: error: cannot "), "\(words)")
                let advice = ["free some space", "delete files"]
                #expect(
                    advice.contains { words.contains("': No space left on device\nhint: \($0)") },
                    "\(words)"
                )
                try await remount(Self.room)
                try await daemon.start()
                return
            }
            let taken = await take(daemon)
            try await daemon.kill()
            // On the full disk it starts again with the tasks that it has stored.
            try daemon.launch()
            if try await answers(daemon) {
                #expect(try await held(daemon) == taken)
                try await daemon.kill()
            } else {
                #expect(try await daemon.end() == 74)
                #expect(taken.isEmpty)
            }
            try await remount(Self.room)
            try await daemon.start()
            #expect(try await held(daemon) == taken)
            try await daemon.makeSession("after")
            try await daemon.download("http://127.0.0.1:1/", in: "after") { $0.isSuspended = true }
        }
    }

    /// Creates sessions with a task each, and returns the responses; each refusal names the disk.
    private func take(_ daemon: DaemonProcess) async -> [String: Int64] {
        var taken: [String: Int64] = [:]
        for index in 0..<40 {
            do {
                try await daemon.makeSession("s\(index)")
                taken["s\(index)"] = 0
                taken["s\(index)"] = try await daemon.download(
                    "http://127.0.0.1:1/",
                    in: "s\(index)"
                ) { request in
                    request.isSuspended = true
                    request.description = String(repeating: "x", count: 1000)
                }
            } catch {
                #expect("\(error)".contains("the disk is full: "), "\(error)")
                return taken
            }
        }
        return taken
    }

    private func held(_ daemon: DaemonProcess) async throws -> [String: Int64] {
        var held: [String: Int64] = [:]
        for session in try await daemon.client.sessions() { held[session.identifier] = 0 }
        for task in try await daemon.client.tasks() { held[task.session] = task.id }
        return held
    }
}
