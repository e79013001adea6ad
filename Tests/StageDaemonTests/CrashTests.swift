import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The design's table of crashes, row by row: the daemon is killed as it enters the n-th system
/// call of a kind, for every kind that makes data durable or visible.
///
/// The scenario covers everything that the daemon makes durable, by calls of these kinds: the journal (tasks, verified content,
/// ends, launches, acknowledgements) by a commit (`pwrite64` to its log, then `fdatasync`), after a copy if a file is uploaded
/// (`fsync`); the record of a part file by `renameat` after `fdatasync` of the part; complete content by a rename with `fsync`
/// of its directory. `unlinkat` removes files that are no longer needed. strace counts the calls of each thread separately, so
/// a number selects several calls.
@Suite(.directory, .daemon, .server, .tracing)
struct CrashTests {
    /// The kinds of calls, with the numbers at which the daemon is killed.
    private static let calls: [(call: String, numbers: [Int])] = [
        ("fdatasync", Array(1...8)),
        ("fsync", Array(1...3)),
        ("pwrite64", [1, 3, 7, 12, 20]),
        ("rename,renameat,renameat2", Array(1...8)),
        ("unlink,unlinkat", Array(1...4)),
    ]

    static let kills = calls.flatMap { entry in
        entry.numbers.map { (calls: entry.call, number: $0) }
    }

    @Test(.serialized, arguments: kills)
    func theNextDaemonContinuesWhereverOneIsKilled(calls: String, number: Int) async throws {
        let trace = [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none",
            "-e", "trace=\(calls)", "-e", "inject=\(calls):signal=KILL:when=\(number)",
        ]
        var scenario = try Scenario(try .required(), TestServer.current, trace: trace)
        try await scenario.run()
    }
}

/// Steps of a client from its first request to its last acknowledgement, repeated after each crash of the daemon.
private struct Scenario {
    private let daemon: DaemonProcess
    private let server: TestServer
    private let peer: Peer
    private let trace: [String]
    private let contents: [String: [UInt8]]
    private let upload: FilePath
    private var ids: [Int64] = []
    /// The durable events that were seen, by their numbers.
    private var seen: [Int64: String] = [:]
    private(set) var deaths = 0

    /// Some content, of more than one checkpoint.
    private static let large = noise(9 << 20, seed: 1)
    private static let small = noise(100_000, seed: 2)
    private static let other = noise(500_000, seed: 3)

    init(_ daemon: DaemonProcess, _ server: TestServer, trace: [String]) throws {
        self.daemon = daemon
        self.server = server
        self.trace = trace
        peer = try Peer(daemon)
        contents = ["/a": Self.large, "/b": Self.small, "/c": Self.other]
        upload = daemon.directory.appending("upload")
        server.answer("/a", with: .content(Self.large))
        server.answer("/b", with: .content(Self.small))
        // The content changes after a response that breaks off, so the partial file gets a new generation.
        let old = Answer.content(noise(500_000, seed: 4)).cut(after: 300_000)
        server.answer("/c", with: old, .content(Self.other))
        server.answer("/u", with: .status(201))
    }

    /// Runs the whole scenario, and compares the files that remain.
    mutating func run() async throws {
        try daemon.configure(
            #"{"retryBase": 0.01, "settlingTime": 0, "relaunchDelay": 0.1}"#
        )
        try await begin()
        try await insist { scenario in try await scenario.create() }
        try await insist { scenario in try await scenario.watch() }
        try await insist { scenario in try await scenario.acknowledge(2) }
        // The handler receives the remaining events: it is started because no client is attached.
        try await insist { scenario in try await scenario.waitForHandler() }
        try compare()
        try await finish()
    }

    private mutating func begin() async throws {
        do {
            try await daemon.start(by: trace)
        } catch is DaemonProcess.Failure {
            try await revive()
        }
    }

    private mutating func revive() async throws {
        #expect(try await daemon.end() == 1000 + SIGKILL, "the daemon died of another cause")
        deaths += 1
        try await daemon.start()
    }

    /// Repeats `body` until it succeeds, with a new daemon after each crash.
    private mutating func insist(
        _ body: (inout Scenario) async throws -> Void
    ) async throws {
        for _ in 0..<4 {
            do {
                return try await body(&self)
            } catch {
                // A tracer ends a little later than the process that it traces.
                try await poll("\(error)") { daemon.status != nil }
                try await revive()
            }
        }
        Issue.record("it is not done after four deaths")
    }

    private var requests: [TransferRequest] {
        var requests = ["/a", "/b", "/c"].map { path in
            TransferRequest(token: path, kind: .download, url: server.url(path))
        }
        requests[1].sha256 = sha256(Self.small)
        var request = TransferRequest(token: "/u", kind: .upload, url: server.url("/u"))
        request.file = upload.string
        request.method = "PUT"
        return requests + [request]
    }

    private mutating func create() async throws {
        try await daemon.makeSession()
        // A request with the same token finds the task that an earlier daemon recorded; the uploaded file may be deleted by then.
        if !FileStatus.exists(upload) {
            try Directory.open(daemon.directory)
                .write(Self.small, to: "upload", durably: false)
        }
        let first = try await daemon.client.createTasks(requests, in: "s")
        if ids.isEmpty { ids = first }
        let second = try await daemon.client.createTasks(requests, in: "s")
        #expect(first == ids)
        #expect(second == ids)
        #expect(Set(ids).count == 4)
    }

    private mutating func watch() async throws {
        let events = try await daemon.outcomes(within: .seconds(120))
        note(events)
        #expect(seen.keys.sorted() == [1, 2, 3, 4])
        for event in events {
            guard let task = event.task, let index = ids.firstIndex(of: task), index < 3 else {
                continue
            }
            let path = FilePath(try #require(event.location))
            #expect(try bytes(of: path) == contents[["/a", "/b", "/c"][index]])
        }
    }

    private mutating func note(_ events: [SessionEvent]) {
        for event in events {
            let number = event.sequence ?? 0
            #expect(seen[number] == nil || seen[number] == event.gist)
            seen[number] = event.gist
        }
    }

    private mutating func acknowledge(_ sequence: Int64) async throws {
        try await daemon.client.acknowledge(Acknowledgement(sequence: sequence), in: "s")
    }

    private mutating func waitForHandler() async throws {
        let handler = peer.handler("acknowledge")
        try await daemon.makeSession { $0.handler = handler }
        try await poll("no handler takes in what is left") {
            try await daemon.client.session("s").acknowledgedEvent >= 4
        }
    }

    /// Compares the observed events with the expected ones.
    private func compare() throws {
        #expect(Set(seen.values.map { $0.split(separator: " ", maxSplits: 1)[1] }).count == 4)
        #expect(seen.values.allSatisfy { $0.contains("completed of") })
        let taken = try peer.notes("acknowledged").compactMap(\.sequences)
        #expect(taken.allSatisfy { $0 == [3, 4] })
        #expect(taken.count <= 1 + deaths)
        #expect(try peer.notes("started").count <= 1 + deaths)
        #expect(server.counts(for: "/a").bytes <= Self.large.count + deaths * (8 << 20))
        #expect(server.bodies(for: "/u").allSatisfy { $0 == Self.small })
    }

    /// Expects that no files remain, at the latest after another start of the daemon.
    private mutating func finish() async throws {
        daemon.abandon()
        try await daemon.start()
        for name in ["parts", "snapshots"] { #expect(try daemon.names(in: name) == [], "\(name)") }
        // The daemon serves requests before it has looked through the finished downloads of all users.
        try await poll("a finished download is left over") {
            try daemon.names(in: "staged/\(geteuid())") == []
        }
        #expect(try await daemon.client.tasks() == [])
        let session = try await daemon.client.session("s")
        #expect(session.lastEvent == 4)
        #expect(session.unfinishedTasks == 0)
        #expect(try await daemon.outcomes() == [])
        // Numbers are not used again. The session has no handler, which could attach before this test does.
        try await daemon.makeSession()
        server.answer("/d", with: .content([1]))
        let id = try await daemon.download(server.url("/d"))
        #expect(id > ids.max() ?? 0)
        #expect(try await daemon.outcomes().map(\.gist) == ["5 completed of \(id)"])
    }
}
