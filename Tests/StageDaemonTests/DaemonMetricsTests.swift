import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The metrics that the daemon serves at its socket.
@Suite(.directory, .daemon, .server)
struct DaemonMetricsTests {
    private let server = TestServer.current

    /// Parses metrics into values by series.
    private static func series(_ text: String) throws -> [String: Double] {
        var series: [String: Double] = [:]
        for line in text.split(separator: "\n") where !line.hasPrefix("#") {
            let end = try #require(line.lastIndex(of: " "))
            let value: Double = try #require(Double(String(line[end...].dropFirst())))
            series[String(line[..<end])] = value
        }
        return series
    }

    private static func states(_ series: [String: Double]) -> [String: Double] {
        series.filter { $0.key.hasPrefix("stagepack_daemon_tasks{") && $0.value > 0 }
    }

    @Test func theMetricsCountRunningWaitingAndEndedTasks() async throws {
        let daemon = try DaemonProcess.required()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 3600}"#)
        try await daemon.start()
        try await daemon.makeSession()
        server.answer("/done", with: .content(noise(5000)))
        server.answer("/gone", with: .status(404))
        server.answer("/busy", with: .content(noise(8 << 20)).stalled(after: 1 << 20))
        let done = try await daemon.download(server.url("/done"))
        try await daemon.wait(for: .completed, of: done)
        let gone = try await daemon.download(server.url("/gone"))
        try await daemon.wait(for: .failed, of: gone)
        try await daemon.download(server.url("/held")) { $0.isSuspended = true }
        let later = try await daemon.download("http://127.0.0.1:1/a")
        try await daemon.wait(for: [.backoff], of: later)
        let busy = try await daemon.download(server.url("/busy"))
        try await poll("nothing is received") {
            try await daemon.client.task(busy).bytesReceived.rawValue >= 1 << 19
        }
        let text = try await daemon.client.metrics()
        let series = try Self.series(text)
        #expect(
            Self.states(series) == [
                #"stagepack_daemon_tasks{kind="transfer",state="running"}"#: 1,
                #"stagepack_daemon_tasks{kind="transfer",state="suspended"}"#: 1,
                #"stagepack_daemon_tasks{kind="transfer",state="waiting"}"#: 1,
            ]
        )
        let expected: [String: Double] = [
            "stagepack_daemon_sessions": 1, "stagepack_daemon_ending_tasks": 0,
            #"stagepack_daemon_waiting_tasks{reason="backoff"}"#: 1,
            #"stagepack_daemon_waiting_tasks{reason="pausedByClient"}"#: 1,
            #"stagepack_daemon_waiting_tasks{reason="slot"}"#: 0,
            #"stagepack_daemon_ended_tasks_total{outcome="completed"}"#: 1,
            #"stagepack_daemon_ended_tasks_total{outcome="failed"}"#: 1,
            #"stagepack_daemon_ended_tasks_total{outcome="cancelled"}"#: 0,
            #"stagepack_daemon_failed_tasks_total{kind="refused"}"#: 1,
            #"stagepack_daemon_failed_tasks_total{kind="unreachable"}"#: 0,
            "stagepack_daemon_sent_bytes_total": 0,
        ]
        for (name, value) in expected {
            #expect(series[name] == value, "\(name)")
        }
        let received = try #require(series["stagepack_daemon_received_bytes_total"])
        #expect((5000 + (1 << 19)...5000 + (1 << 20)).contains(Int(received)))
        for name in ["start_time_seconds", "journal_bytes", "journal_used_bytes"] {
            #expect(try #require(series["stagepack_daemon_\(name)"]) > 0, "\(name)")
        }
        #expect(text.contains("stagepack_daemon_build_info{libcurl="))
        try Self.expectFormat(of: text)
    }

    /// Each metric has its HELP and TYPE line before its samples, and only counters end in `_total`.
    private static func expectFormat(of text: String) throws {
        var current = ""
        for line in text.split(separator: "\n", omittingEmptySubsequences: false).dropLast() {
            let words = line.split(separator: " ")
            if line.hasPrefix("# HELP ") {
                current = String(words[2])
            } else if line.hasPrefix("# TYPE ") {
                #expect(words[2] == current)
                #expect((words[3] == "counter") == current.hasSuffix("_total"), "\(line)")
            } else {
                #expect(line.hasPrefix("\(current){") || line.hasPrefix("\(current) "), "\(line)")
            }
        }
        #expect(text.hasSuffix("\n"))
    }

    @Test func bytesThatADownloadResumedFromCountOnce() async throws {
        let daemon = try DaemonProcess.required()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 0.05}"#)
        try await daemon.start()
        try await daemon.makeSession()
        let content = noise(2 << 20)
        server.answer(
            "/x",
            with: Answer.content(content).tagged("\"1\"").cut(after: 1 << 20),
            Answer.content(content).tagged("\"1\"")
        )
        let id = try await daemon.download(server.url("/x")) { $0.size = ByteCount(2 << 20) }
        try await daemon.wait(for: .completed, of: id)
        let series = try Self.series(try await daemon.client.metrics())
        #expect(series["stagepack_daemon_received_bytes_total"] == Double(2 << 20))
    }
}

/// The metrics of a daemon for all users.
@Suite(.directory, .daemon, .server, .severalUsers)
struct DaemonMetricsUserTests {
    private let server = TestServer.current

    @Test func aUserSeesItsOwnTransfersOnly() async throws {
        let daemon = try DaemonProcess.required()
        try daemon.letOthersPass()
        try daemon.configure(#"{"settlingTime": 0}"#)
        try await daemon.start()
        let peer = try Peer(daemon)
        server.answer("/a", with: .content(noise(1000)))
        let body =
            #"{"tasks": [{"token": "t", "kind": "download", "url": "\#(server.url("/a"))"}]}"#
        for (path, method, content) in [
            ("/v1/sessions/s", "PUT", "{}"), ("/v1/sessions/s/tasks", "POST", body),
        ] {
            let answer = try await peer.ask(as: 65534, 65534, method, path, content)
            #expect(answer.status == 200, "\(answer)")
        }
        let own = "stagepack_daemon_ended_tasks_total{outcome=\"completed\"} "
        try await poll("the download does not end") {
            try await peer.ask(as: 65534, 65534, "GET", "/v1/metrics", "").body
                .contains("\n\(own)1\n")
        }
        let received = "\nstagepack_daemon_received_bytes_total "
        let (first, other) = try await (
            peer.ask(as: 65534, 65534, "GET", "/v1/metrics", ""),
            peer.ask(as: 1, 1, "GET", "/v1/metrics", "")
        )
        #expect(first.body.contains("\(received)1000\n"))
        #expect(first.body.contains("\nstagepack_daemon_sessions 1\n"))
        #expect(other.status == 200)
        for text in ["\n\(own)0\n", "\(received)0\n", "\nstagepack_daemon_sessions 0\n"] {
            #expect(other.body.contains(text), "\(other.body)")
        }
        // The size of all records would reveal the activity of other users.
        #expect(!other.body.contains("stagepack_daemon_journal_bytes"))
        #expect(try await peer.ask(as: 1, 1, "GET", "/v1/metrics?all=1", "").status == 403)
        // Root sees the transfers of other users only on request.
        #expect(try await daemon.client.metrics().contains("\(received)0\n"))
        let all = try await daemon.client.metrics(all: true)
        #expect(all.contains("\(received)1000\n"))
        #expect(all.contains("\nstagepack_daemon_sessions 1\n"))
        #expect(all.contains("\nstagepack_daemon_journal_bytes "))
    }
}
